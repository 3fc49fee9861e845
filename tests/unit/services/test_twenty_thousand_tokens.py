"""Greedy and seeded output over every lookahead, two drafts, every fallback, eight at once and a lost speculator."""

from __future__ import annotations

import pytest

from saguaro.types import GenerationRequest, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio, Pace

SAMPLINGS = (SamplingParams(), SamplingParams(temperature=0.9, seed=71))
PROMPTS = [tuple(range(30 + index, 50 + index)) for index in range(8)]
MAX_TOKENS = 60


def tokens_of(
    trio: InMemoryTrio, count: int, sampling: SamplingParams, *, lose_after: int | None = None
) -> list[list[int]]:
    answers = [
        trio.submit(GenerationRequest(f"r{index}", prompt, sampling, max_tokens=MAX_TOKENS))[1]
        for index, prompt in enumerate(PROMPTS[:count])
    ]
    if lose_after is not None:
        for _ in range(lose_after):
            trio.step()
        trio.detach()
    trio.run(*answers)
    return [answer.tokens for answer in answers]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_thousand_tokens_are_those_of_plain_decoding(tiny: TinyModels) -> None:
    num_tokens = num_runs = 0
    for sampling in SAMPLINGS:
        plain = tokens_of(InMemoryTrio(tiny.target, None), len(PROMPTS), sampling)
        for lookahead in range(9):
            runs = {
                "hits, eight at once": (InMemoryTrio(tiny.target, tiny.draft, lookahead=lookahead), 8, None),
                "a draft that is never right": (
                    InMemoryTrio(tiny.target, tiny.random_draft, lookahead=lookahead, pace=Pace.STEPWISE), 4, None,
                ),
                "just in time": (InMemoryTrio(tiny.target, tiny.draft, lookahead=lookahead, pace=Pace.LATE), 2, None),
                "nothing in time": (
                    InMemoryTrio(tiny.target, tiny.draft, lookahead=lookahead, just_in_time_ms=0, pace=Pace.STEPWISE),
                    2, None,
                ),
                "guesses without a model": (
                    InMemoryTrio(tiny.target, tiny.draft, lookahead=lookahead, is_fixed=False), 2, None,
                ),
                "the speculator lost": (InMemoryTrio(tiny.target, tiny.draft, lookahead=lookahead), 4, 12),
            }  # fmt: skip
            for name, (trio, count, lose_after) in runs.items():
                found = tokens_of(trio, count, sampling, lose_after=lose_after)
                assert found == plain[:count], f"{name}, K = {lookahead}, {sampling}"
                num_tokens += sum(map(len, found))
                num_runs += 1
    print(f"{num_tokens} tokens in {num_runs} runs, none other than plain decoding's")
    assert num_tokens >= 20_000
