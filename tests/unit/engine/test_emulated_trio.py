"""Emulated pairs behind the real loops: the same tokens with and without speculation, acceptance as designed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scipy import stats
from tokenizers import Tokenizer

from saguaro.core.fan_out import miss_probability
from saguaro.core.rank_histogram import Allocation, OutcomeStatistics
from saguaro.emulation.profile import Role
from saguaro.emulation.tokenizer import EOS_ID, tokenizer_folder
from saguaro.engine.emulated import EmulatedRunner
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.types import Constraint, ConstraintKind, FinishReason, GenerationRequest, LookupResult, SamplingParams
from tests.unit.engine.emulated_pair import profile
from tests.unit.services.in_memory_trio import InMemoryTrio, Pace

PROMPT = tuple(b"Why is the sky blue?")
GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.9, seed=11)
ACCEPTANCE_RATE, RANK_EXPONENT = 0.7, 1.2


def pair_runner(role: Role, num_blocks: int) -> EmulatedRunner:
    return EmulatedRunner(
        profile(acceptance_rate=ACCEPTANCE_RATE, rank_exponent=RANK_EXPONENT), role, num_blocks=num_blocks, block_size=4
    )


def trio(*, drafted: bool = True, blocks: int = 2048, **options: object) -> InMemoryTrio:
    draft = pair_runner(Role.DRAFT, blocks) if drafted else None
    return InMemoryTrio(pair_runner(Role.TARGET, blocks), draft, **options)  # type: ignore[arg-type]


def request(sampling: SamplingParams, max_tokens: int, prompt: tuple[int, ...] = PROMPT) -> GenerationRequest:
    return GenerationRequest("r", prompt, sampling, max_tokens=max_tokens, include_rounds=True)


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "temperature 0.9"])
@pytest.mark.parametrize(("lookahead", "budget"), [(1, 1), (4, 8), (6, 24)])
def test_speculated_tokens_are_the_plain_ones(
    pace: Pace, sampling: SamplingParams, lookahead: int, budget: int
) -> None:
    plain = trio(drafted=False).generate(request(sampling, 60)).tokens
    speculated = trio(pace=pace, lookahead=lookahead, budget=budget)
    assert speculated.generate(request(sampling, 60)).tokens == plain
    speculated.assert_all_blocks_free()


def test_a_batch_under_preemption_says_what_each_says_alone() -> None:
    prompts = [tuple(range(index, index + 21)) for index in range(6)]
    expected = [trio(drafted=False).generate(request(GREEDY, 40, prompt)).tokens for prompt in prompts]
    crowded = trio(blocks=60)
    answers = [crowded.submit(request(GREEDY, 40, prompt))[1] for prompt in prompts]
    crowded.run(*answers)
    assert [answer.tokens for answer in answers] == expected
    assert crowded.loop.scheduler.num_preemptions > 0


def test_the_measured_acceptance_rate_is_the_profiles() -> None:
    answer = trio(lookahead=4, budget=16).generate(request(GREEDY, 1500))
    rounds = [item for item in answer.finished.speculation.rounds[:-1] if item.num_draft_tokens]
    accepted = sum(item.num_accepted_tokens for item in rounds)
    trials = sum(min(item.num_accepted_tokens + 1, item.num_draft_tokens) for item in rounds)
    # The draws are fixed; a false alarm had a chance of 1e-4 when this was written.
    assert stats.binomtest(accepted, trials, ACCEPTANCE_RATE).pvalue > 1e-4


def test_a_larger_budget_hits_more_often() -> None:
    rates = []
    for budget in (2, 8, 32):
        rounds = trio(lookahead=4, budget=budget).generate(request(GREEDY, 600)).finished.speculation.rounds
        looked_up = [item.lookup for item in rounds if item.lookup is not LookupResult.NOT_SPECULATED]
        rates.append(looked_up.count(LookupResult.HIT) / len(looked_up))
    assert rates[0] + 0.1 < rates[1] < rates[2] - 0.05
    assert rates[2] > 0.85


@pytest.mark.parametrize("budget", [5, 10, 20, 40])
def test_hits_follow_the_miss_law_of_the_profile(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With K = 4 and the same F for every k < K: a rejected token's place is guessed with 1 - (1 + F)^-r."""
    lookahead, each = 4, budget // 5
    monkeypatch.setattr(
        OutcomeStatistics, "allocation", lambda self, length, budget: Allocation((each,) * (length + 1), 0.0)
    )
    rounds = trio(lookahead=lookahead, budget=budget).generate(request(GREEDY, 1200)).finished.speculation.rounds
    refused = [
        item.lookup is LookupResult.HIT
        for item in rounds[1:-1]
        if item.num_draft_tokens == lookahead and item.num_accepted_tokens < lookahead
    ]
    expected = 1 - miss_probability(each, RANK_EXPONENT)
    print(f"F {each}: {sum(refused)} hits of {len(refused)}, by the law {expected:.3f}")
    # The draws are fixed; a false alarm had a chance of 1e-4 when this was written.
    assert stats.binomtest(sum(refused), len(refused), expected).pvalue > 1e-4


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_constrained_words_are_kept_and_are_the_plain_ones(
    temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGUARO_CACHE", str(tmp_path))
    folder, vocabulary = tokenizer_folder(400), 400
    compiler = ConstraintCompiler.for_model(folder, num_tokens=vocabulary, eos_token_ids=(EOS_ID,))
    constraint = Constraint(ConstraintKind.REGEX, r"( [a-z]+){5}(!|\?)")
    asked = request(SamplingParams(temperature, seed=3, constraint=constraint), 60)
    options = {"eos_token_ids": [EOS_ID], "compiler": compiler}
    plain, speculated = (trio(drafted=drafted, **options).generate(asked) for drafted in (False, True))
    assert speculated.tokens == plain.tokens
    assert speculated.finished.speculation.cache_hits > 0
    text = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(plain.tokens)
    assert plain.finished.reason is FinishReason.STOP
    assert re.fullmatch(constraint.text, text)
