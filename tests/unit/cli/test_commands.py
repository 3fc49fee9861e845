"""The command line as a user runs it: output, exit codes, help."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from saguaro.progress import Progress, format_progress, parse_progress
from saguaro.types import AcceptanceMode, Constraint, ConstraintKind, SamplingParams
from tests.unit.gateway.house import ROUNDS, House, running_house
from tests.unit.gateway.text_folder import write_text_folder

ANSWER = "The saguaro 🌵 is größer."
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("text"))


async def saguaro(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "saguaro.cli", *arguments, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def generated(folder: Path, *arguments: str, stdin: bytes = b"") -> tuple[House, int, str, str]:
    """`saguaro generate` against a house of its own."""

    async def scenario() -> tuple[House, int, str, str]:
        async with running_house(folder, ANSWER) as house:
            return house, *await saguaro("generate", "--address", house.address, *arguments, stdin=stdin)

    return asyncio.run(scenario())


def test_every_parameter_reaches_the_verifier_and_logprobs_and_choices_come_back(folder: Path) -> None:
    flags = "--temperature 0.5 --top-p 0.9 --top-k 7 --min-p 0.1 --repetition-penalty 1.2 --presence-penalty -1 "
    flags += "--frequency-penalty 2 --logit-bias 5=-1.5 --logit-bias 6=2 --seed 9 --n 2 --max-tokens 40 --min-tokens 3 "
    flags += "--stop zzz --stop-token-id 7 --ignore-eos --logprobs --prompt-logprobs --top-logprobs 2 --json"
    house, code, out, err = generated(folder, *flags.split(), "Hi")
    assert (code, err) == (0, "")
    first, second = house.verifier.requests
    assert first.sampling == SamplingParams(0.5, 0.9, 7, 9, 0, 0.1, 1.2, -1.0, 2.0, ((5, -1.5), (6, 2.0)), 3, (7,))
    assert (first.max_tokens, first.ignore_eos, first.logprobs, first.top_logprobs) == (40, True, True, 2)
    assert (second.sampling.choice, first.prompt_logprobs) == (1, True)
    answer = json.loads(out)
    assert [choice["text"] for choice in answer["choices"]] == [ANSWER, ANSWER]
    assert [item["logprob"] for item in answer["logprobs"]] == [-float(token) for token in house.verifier.answer]
    assert len(answer["prompt_logprobs"]) == len(first.prompt) - 1


def test_several_choices_are_shown_one_after_another(folder: Path) -> None:
    _, code, out, _ = generated(folder, "--n", "2", "Hi")
    assert code == 0
    assert out.index("--- choice 0") < out.index(ANSWER) < out.index("--- choice 1") < out.rindex(ANSWER)


def test_json_is_one_object_with_everything_a_program_wants(folder: Path) -> None:
    house, code, out, err = generated(folder, "--json", "--seed", "9", "--temperature", "0.5", "Hi")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    speeds = {name: answer.pop(name) for name in ("tokens_per_second", "ttft_seconds")}
    assert all(value > 0 for value in speeds.values())
    (asked,) = house.verifier.requests
    assert answer == {
        "text": ANSWER,
        "token_ids": list(house.verifier.answer),
        "num_tokens": len(house.verifier.answer),
        "num_rounds": 2,
        "mean_acceptance_length": 3.0,
        "cache_hits": 2,
        "cache_misses": 0,
        "cache_late": 0,
        "seed": 9,
        "acceptance_mode": "coupled",
        "num_cached_prompt_tokens": 0,
        "speculating": True,
        "reason": None,
        "prompt_token_ids": list(asked.prompt),
        "finish_reason": "stop",
        "model": "fake",
    }
    assert asked.max_tokens == 256


def test_rounds_are_in_the_json_on_request(folder: Path) -> None:
    _, code, out, _ = generated(folder, "--json", "--rounds", "Hi")
    assert code == 0
    rounds = json.loads(out)["rounds"]
    assert [item["lookup"] for item in rounds] == ["hit", "hit"]
    assert rounds[0]["verify_ns"] == ROUNDS[0].verify_ns


def test_text_comes_first_and_then_the_table(folder: Path) -> None:
    _, code, out, _ = generated(folder, "--seed", "9", "--rounds", "Hi")
    assert code == 0
    assert out.startswith(ANSWER + "\n")
    for word in ("tok/s", "TTFT", "mean acceptance length", "hit / miss / late", "2 / 0 / 0", "round 1: 2/2 accepted"):
        assert word in out


def test_the_prompt_goes_through_the_chat_template_unless_raw_and_may_come_from_stdin(folder: Path) -> None:
    house, *_ = generated(folder, "-", stdin="Größe".encode())
    (asked,) = house.verifier.requests
    assert house.text.decode(list(asked.prompt)) == "user\nGröße\nassistant\n"
    house, *_ = generated(folder, "--raw", "Größe")
    (asked,) = house.verifier.requests
    assert asked.prompt == house.text.encode("Größe")


def test_flags_reach_the_verifier(folder: Path) -> None:
    flags = (
        "--no-speculation",
        "--ignore-eos",
        "--top-k",
        "5",
        "--top-p",
        "0.5",
        "--max-tokens",
        "4",
        "--model",
        "fake",
        "--acceptance",
        "rejection",
        "--cached-scale",
        "0.5",
    )
    house, code, *_ = generated(folder, *flags, "Hi")
    (asked,) = house.verifier.requests
    assert code == 0
    assert (asked.disable_speculation, asked.ignore_eos, asked.max_tokens) == (True, True, 4)
    assert (asked.sampling.top_k, asked.sampling.top_p) == (5, 0.5)
    assert (asked.sampling.acceptance, asked.sampling.cached_scale) == (AcceptanceMode.REJECTION, 0.5)


def test_a_constraint_reaches_the_verifier_from_a_flag_or_a_file(folder: Path, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.gbnf"
    schema.write_text('{"type": "null"}')
    grammar.write_text('root ::= "a"')
    for flags, constraint in (
        (["--json-schema", str(schema)], Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "null"}')),
        (["--json-schema", '{"const": 1}'], Constraint(ConstraintKind.JSON_SCHEMA, '{"const": 1}')),
        (["--json-object"], Constraint(ConstraintKind.JSON_OBJECT)),
        (["--regex", "a+"], Constraint(ConstraintKind.REGEX, "a+")),
        (["--grammar", str(grammar)], Constraint(ConstraintKind.GRAMMAR, 'root ::= "a"')),
    ):
        house, code, *_ = generated(folder, *flags, "Hi")
        assert (code, house.verifier.requests[0].sampling.constraint) == (0, constraint)


def test_a_file_that_cannot_be_read_is_named_with_its_flag(folder: Path) -> None:
    for flag in ("--json-schema", "--grammar"):
        _, code, out, err = generated(folder, flag, "nowhere.json", "Hi")
        assert (code, out) == (2, "")
        assert f'{flag} is "nowhere.json"' in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--regex", "a", "--json-object"], "json_object and regex are both given"),
        (["--json-schema", "{"], "sampling.json_schema is not JSON"),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--acceptance", "greedy"], 'acceptance is "greedy"; it must be one of coupled, rejection'),
        (["--cached-scale", "2"], "cached_scale is 2.0; it must be from 0 to 1"),
        (["--model", "gpt"], 'no model "gpt"'),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(folder: Path, flags: list[str], message: str) -> None:
    _, code, out, err = generated(folder, *flags, "Hi")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


def test_without_a_gateway_the_user_is_told_how_to_start_one() -> None:
    code, out, err = asyncio.run(saguaro("generate", "--address", NOBODY, "Hi"))
    assert (code, out) == (1, "")
    assert err == f"saguaro generate: no gateway listens on {NOBODY}; `saguaro up` starts one\n"


def test_help_names_every_command_and_a_role_s_help_is_the_service_s_own() -> None:
    code, out, _ = asyncio.run(saguaro("--help"))
    assert code == 0
    for command in ("up", "generate", "demo", "speculator", "verifier", "gateway"):
        assert command in out
    code, out, _ = asyncio.run(saguaro("gateway", "--help"))
    assert code == 0
    assert "SAGUARO_GATEWAY_VERIFIER" in out


def test_a_role_passes_its_exit_code_on() -> None:
    code, _, err = asyncio.run(saguaro("gateway", "--prot", "3"))
    assert code == 2
    assert "did you mean --port?" in err


@pytest.mark.parametrize(
    "step", [Progress("verifier", "converting demo-target", 0.25), Progress("gateway", "waiting", None)]
)
def test_a_progress_line_survives(step: Progress) -> None:
    assert parse_progress(format_progress(step)) == step


@pytest.mark.parametrize("line", ["", "progress", "progress verifier 0.5", "progress verifier loading x", "INFO a b c"])
def test_other_lines_are_no_progress(line: str) -> None:
    assert parse_progress(line) is None
