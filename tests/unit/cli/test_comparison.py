"""The first difference of two answers is found, with the gap as each run saw it."""

from __future__ import annotations

from typing import Any

import pytest

from saguaro.cli.comparison import first_divergence
from saguaro.client import Answer
from saguaro.types import AcceptanceMode, FinishReason, SpeculationReport, TokenLogprobs


def answer(tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...] = (), choice: int = 0) -> Answer:
    rest: dict[str, Any] = dict.fromkeys(
        ("num_prompt_tokens", "num_generated_tokens", "num_cached_prompt_tokens", "num_first_tokens"), 0
    )
    return Answer(
        text="", token_ids=tokens, prompt_token_ids=(), request_id="r", model="m", seed=0,
        acceptance_mode=AcceptanceMode.COUPLED, choice=choice, finish_reason=FinishReason.LENGTH,
        speculation=SpeculationReport(speculating=True), ttft_seconds=0.0, elapsed_seconds=0.0, logprobs=logprobs,
        prompt_logprobs=(), **rest,
    )  # fmt: skip


def test_equal_answers_have_no_divergence() -> None:
    assert first_divergence(0, answer((4, 5, 6)), answer((4, 5, 6))) is None


def test_the_first_of_several_differences_is_named_with_both_gaps() -> None:
    same = TokenLogprobs(-0.1, ((4, -0.1), (9, -2.0)))
    speculated = (same, TokenLogprobs(-1.0, ((5, -1.0), (7, -1.5))), same)
    plain = (same, TokenLogprobs(-1.25, ((7, -1.25), (5, -1.5))), same)
    found = first_divergence(3, answer((4, 5, 6), speculated, choice=2), answer((4, 7, 8), plain, choice=2))
    assert found is not None
    assert (found.prompt, found.choice, found.position, found.speculated, found.plain) == (3, 2, 1, 5, 7)
    assert found.speculated_gap == pytest.approx(0.5)
    assert found.plain_gap == pytest.approx(0.25)
    assert str(found) == ("prompt 3, choice 2, token 1: token 5 with speculation (gap 0.5), token 7 without (gap 0.25)")


def test_an_answer_that_ends_sooner_diverges_at_its_end() -> None:
    found = first_divergence(0, answer((4, 5)), answer((4, 5, 6)))
    assert found is not None
    assert (found.position, found.speculated, found.plain) == (2, None, 6)
    assert "the end with speculation (gap unknown)" in str(found)


def test_the_gap_is_unknown_without_logprobs_or_where_the_other_token_is_no_alternative() -> None:
    found = first_divergence(0, answer((4,)), answer((5,), (TokenLogprobs(-1.0, ((5, -1.0), (6, -1.5))),)))
    assert found is not None
    assert (found.speculated_gap, found.plain_gap) == (None, None)
