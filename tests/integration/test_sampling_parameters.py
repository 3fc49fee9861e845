"""Every sampling parameter through three real processes: the same with and without speculation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.types import AcceptanceMode, FinishReason
from saguaro.v1 import verifier_pb2
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.speculating import await_speculation

PROMPT = list(range(65, 105))
EVERYTHING: dict[str, Any] = {
    "temperature": 0.9, "top_p": 0.95, "top_k": 60, "min_p": 0.01, "seed": 12, "repetition_penalty": 1.2,
    "presence_penalty": 0.5, "frequency_penalty": 0.3, "logit_bias": {70: 1.5, 80: -100}, "min_tokens": 10,
    "stop_token_ids": [3, 4, 5], "max_tokens": 60, "logprobs": True, "prompt_logprobs": True, "top_logprobs": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def trio(tiny_target: Path, tiny_draft: Path) -> Iterator[Trio]:
    always = ["--policy", "fixed:4,16,inf", "--just-in-time-ms", "10000"]  # whatever else the machine does
    flags = {"verifier_flags": always, "speculator_flags": ["--linear", "stock"]}
    with Trio(target=str(tiny_target), draft=str(tiny_draft), **flags) as running:
        await_speculation(running)
        yield running


def ask(trio: Trio, **options: Any) -> list[Answer]:
    with Client(trio.gateway_address) as client, client.generate(PROMPT, **options) as stream:
        stream.finish()
        return list(stream.results)


def test_all_parameters_at_once_give_the_same_with_and_without_speculation(trio: Trio) -> None:
    (drafted,), (plain,) = ask(trio, **EVERYTHING), ask(trio, **EVERYTHING, speculation=False)
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text
    assert 80 not in drafted.token_ids
    assert drafted.speculation.num_accepted_tokens > 0
    assert (drafted.seed, drafted.acceptance_mode) == (12, AcceptanceMode.COUPLED)
    assert len(drafted.logprobs) == len(drafted.token_ids)
    assert len(drafted.prompt_logprobs) == len(PROMPT) - 1
    for ours, theirs in zip(
        drafted.prompt_logprobs + drafted.logprobs, plain.prompt_logprobs + plain.logprobs, strict=True
    ):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]


def test_choices_differ_share_the_prompt_s_blocks_and_repeat(trio: Trio) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 5, "n": 3, "max_tokens": 30, "ignore_eos": True}
    answers = ask(trio, **options)
    # Blocks of 16 tokens: two whole ones of the prompt's 40 tokens.
    assert [answer.num_cached_prompt_tokens for answer in answers[1:]] == [32, 32]
    assert len({answer.token_ids for answer in answers}) == 3
    assert [answer.token_ids for answer in ask(trio, **options)] == [answer.token_ids for answer in answers]


def test_a_stop_string_ends_the_answer_and_the_verifier_s_work(trio: Trio) -> None:
    (whole,) = ask(trio, max_tokens=60, ignore_eos=True)
    stop = next(character for character in whole.text[20:] if character.isascii() and character.isprintable())
    (answer,) = ask(trio, max_tokens=3000, ignore_eos=True, stop=[stop], logprobs=True)
    (plain,) = ask(trio, max_tokens=3000, ignore_eos=True, stop=[stop], speculation=False)
    assert answer.text == whole.text[: whole.text.index(stop)]
    assert answer.finish_reason is FinishReason.STOP
    assert answer.token_ids == plain.token_ids == whole.token_ids[: len(answer.token_ids)]
    assert answer.num_generated_tokens == len(answer.token_ids) == len(answer.logprobs) < 3000
    with grpc.insecure_channel(trio.verifier_address) as channel:
        load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=20)
    assert load.num_running == 0


def test_an_answer_in_rejection_mode_is_drafted_over_the_wire_and_says_so(trio: Trio) -> None:
    options: dict[str, Any] = {"temperature": 0.8, "seed": 4, "max_tokens": 60, "ignore_eos": True}
    (answer,) = ask(trio, **options, acceptance="rejection", cached_scale=0.5)
    assert answer.acceptance_mode is AcceptanceMode.REJECTION
    assert answer.speculation.speculating, answer.speculation.reason
    assert answer.speculation.num_accepted_tokens > 0
    assert len(answer.token_ids) == 60
