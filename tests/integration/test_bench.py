"""`saguaro bench` as a user runs it: a process, flags, one JSON object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "saguaro.cli", "bench", "--json"]
RATIOS = {"ssd_over_sd", "ssd_over_plain", "ssd_over_assisted", "hit_round_over_forward"}
PROFILE = """
vocabulary = 600
context_limit = 4096
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 12.0
[draft]
base_ms = 0.5
"""
FEW = ("--temperatures", "0", "--concurrencies", "1", "--kinds", "chat", "--prompts", "1")


@pytest.fixture
def profile(tmp_path: Path) -> str:
    file = tmp_path / "tiny.toml"
    file.write_text(PROFILE)
    return str(file)


def run(*flags: str, timeout: float) -> dict[str, Any]:
    output = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=timeout, check=True).stdout
    document: dict[str, Any] = json.loads(output)
    return document


@pytest.mark.slow
def test_an_emulated_pair_is_measured_in_all_its_modes_with_a_sweep_and_a_picture(profile: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "bench.png"
    flags = ("--emulate", profile, *FEW, "--max-tokens", "40", "--sweep", "K=2 B=4,8", "--plot", str(picture))
    document = run(*flags, timeout=120)
    modes = {"plain", "sd", "ssd", "fixed:2,4,inf", "fixed:2,8,inf"}
    assert set(document["measured"]) == set(document["predicted"]) == modes
    assert set(document["ratios"]) == RATIOS
    assert document["ratios"]["ssd_over_assisted"] is None
    assert document["ratios"]["ssd_over_sd"] > 0
    (cell,) = document["cells"]
    assert set(cell["sweep"]["auto_over"]) == {"fixed:2,4,inf", "fixed:2,8,inf"}
    # Every mode says the same after the same prompt, and what is asked of the verifier is what it does.
    assert len({summary["num_tokens"] for summary in cell["modes"].values()}) == 1
    rounds = {mode: summary["speculated"] for mode, summary in cell["modes"].items()}
    assert rounds["sd"]["hit_rate"] == 0
    assert rounds["ssd"]["hit_rate"] > 0
    assert 1 < rounds["fixed:2,8,inf"]["tokens_per_round"] <= 3
    assert rounds["ssd"]["bytes_per_round"]["received"] > rounds["sd"]["bytes_per_round"]["received"] > 0
    assert picture.stat().st_size > 5000


@pytest.mark.slow
def test_an_interrupted_bench_shows_what_it_has_and_leaves_no_process(profile: str) -> None:
    flags = ("--emulate", profile, *FEW, "--modes", "plain,ssd", "--prompts", "30", "--max-tokens", "100")
    with subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "0%: turn" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in errors
    document = json.loads(output)
    assert document["provenance"]["interrupted"]
    assert document["measured"]["plain"] > 0
    assert not _running_with(profile)


def _running_with(argument: str) -> list[str]:
    """Processes that have the argument in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_text()
        except OSError:  # it ended meanwhile
            continue
        if argument in command and int(file.parent.name) != os.getpid():
            found.append(command)
    return found


@pytest.mark.slow
def test_a_quick_bench_ends_within_a_minute_and_compares_everything() -> None:
    started = time.monotonic()
    document = run("--quick", timeout=180)
    took = time.monotonic() - started
    assert set(document["ratios"]) == RATIOS
    assert all(value > 0 for value in document["ratios"].values())
    assert document["ratios"]["hit_round_over_forward"] >= 1
    assert 0 < document["hit_rate"] <= 1
    assert 0 < document["acceptance_rate"] <= 1
    for mode in ("plain", "sd", "ssd"):
        assert document["measured"][mode] > 0
        assert document["predicted"][mode] > 0
    assert document["measured"]["transformers_assisted"] > 0
    assert took < 60
