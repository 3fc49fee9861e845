"""`saguaro verify-exact` against a real trio on emulated devices: equal, different, and unable to run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from saguaro.cli.exactness import Verdict, compare_laws, compare_tokens
from saguaro.cli.trio import Trio
from saguaro.cli.verify_exact import EXIT_COULD_NOT_RUN, EXIT_DIFFERENT, EXIT_EQUAL, report
from saguaro.client import Client
from saguaro.client.requests import GenerateOptions
from saguaro.types import AcceptanceMode
from tests.integration.speculating import await_speculation

PROFILE = """
vocabulary = 600
context_limit = 4096
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 2
[draft]
base_ms = 0.2
"""
PROMPTS = ("Why is the sky blue?", "Tell me a story.")
WARM: GenerateOptions = {"temperature": 0.9, "seed": 7, "n": 3, "max_tokens": 60}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("verify-exact") / "fast.toml"
    file.write_text(PROFILE)
    return file


@pytest.fixture(scope="module")
def trio(profile: Path) -> Iterator[Trio]:
    always = ("--policy", "fixed:4,16,inf")
    with Trio(emulate=str(profile), log_folder=profile.parent, verifier_flags=always) as running:
        await_speculation(running)
        yield running


def saguaro(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "saguaro.cli", "verify-exact", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def compared(trio: Trio, plain: GenerateOptions) -> Verdict:
    with Client(trio.gateway_address) as client:
        return compare_tokens(client, PROMPTS, WARM, plain, lambda done: None)


def test_running_services_are_found_equal(trio: Trio) -> None:
    ended = saguaro(
        "--address", trio.gateway_address, "--temperature", "0.9", "--n", "2", "--max-tokens", "40", "--json"
    )
    assert (ended.returncode, ended.stderr) == (EXIT_EQUAL, "")
    found = json.loads(ended.stdout)
    assert found["equal"]
    assert found["acceptance"] == "coupled"
    assert (found["num_prompts"], found["num_answers"], found["num_tokens"]) == (8, 16, 16 * 40)
    assert found["num_accepted_tokens"] > 0
    assert found["divergences"] == []


@pytest.mark.slow
def test_a_trio_of_its_own_is_found_equal(profile: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Only this one.\n\nAnd this.\n")
    ended = saguaro("--emulate", str(profile), "--prompts", str(prompts), "--max-tokens", "40")
    assert ended.returncode == EXIT_EQUAL, ended.stderr
    assert ended.stdout.startswith("2 prompts, 2 answers, 80 tokens, ")
    assert ended.stdout.endswith("equal: the same tokens with speculation and without\n")


def test_other_seeds_are_found_different_with_place_and_gaps(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = compared(trio, {"speculation": False, "seed": 8})
    assert report(verdict, as_json=False) == EXIT_DIFFERENT
    assert "DIFFERENT: 6 answers diverge" in capsys.readouterr().out
    assert all(item.position < 10 for item in verdict.divergences)
    assert any(item.plain_gap is not None for item in verdict.divergences)


def test_a_run_in_which_nothing_was_speculated_proves_nothing(trio: Trio) -> None:
    with Client(trio.gateway_address) as client:
        idle: GenerateOptions = {**WARM, "speculation": False}
        verdict = compare_tokens(client, PROMPTS, idle, {"speculation": False}, lambda done: None)
    assert verdict.is_equal
    assert report(verdict, as_json=False) == EXIT_COULD_NOT_RUN


def test_rejection_mode_is_judged_by_its_law(trio: Trio) -> None:
    # The seed is fixed; of others one in 1000 fails.
    flags = ("--acceptance", "rejection", "--temperature", "0.9", "--max-tokens", "3", "--samples", "100", "--json")
    ended = saguaro("--address", trio.gateway_address, *flags)
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["acceptance"]) == (EXIT_EQUAL, "rejection"), found
    assert len(found["law_tests"]) == 8 * 3
    assert found["num_accepted_tokens"] > 0


def test_nobody_at_the_address_is_exit_code_2() -> None:
    ended = saguaro("--address", "127.0.0.1:1")
    assert ended.returncode == EXIT_COULD_NOT_RUN
    assert "the gateway at 127.0.0.1:1 cannot be reached" in ended.stderr


def test_the_law_is_the_same_with_speculation_and_without(trio: Trio) -> None:
    # The seed is fixed; of others one in 1000 fails.
    with Client(trio.gateway_address) as client:
        options: GenerateOptions = {"temperature": 0.9, "seed": 1, "max_tokens": 3}
        verdict = compare_laws(client, PROMPTS[:1], options, 400, lambda done: None)
    assert verdict.acceptance is AcceptanceMode.COUPLED
    assert len(verdict.law_tests) == 3
    assert verdict.num_accepted_tokens > 0
    assert verdict.is_equal, verdict.law_tests
