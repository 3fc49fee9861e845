"""Whatever the draft does, however late or dead it is, the output is the target's own: token for token."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from saguaro.types import GenerationRequest, LookupResult, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace

GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.9, seed=2**63 + 11)
PROMPT = tuple(range(40, 63))


def request(
    sampling: SamplingParams = GREEDY, prompt: tuple[int, ...] = PROMPT, max_tokens: int = 40
) -> GenerationRequest:
    return GenerationRequest("r", prompt, sampling, max_tokens=max_tokens, include_rounds=True)


@pytest.fixture(scope="module", params=[GREEDY, WARM], ids=["greedy", "temperature 0.9"])
def sampling(request: pytest.FixtureRequest) -> SamplingParams:
    return request.param


@pytest.fixture(scope="module")
def plain(tiny: TinyModels, sampling: SamplingParams) -> list[int]:
    """The target alone."""
    return InMemoryTrio(tiny.target, None).generate(request(sampling)).tokens


def test_greedy_equals_transformers_generate(tiny: TinyModels) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    expected = model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False, max_new_tokens=40,
        eos_token_id=None,
    )  # fmt: skip
    assert InMemoryTrio(tiny.target, tiny.draft).generate(request()).tokens == expected[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize(("lookahead", "budget"), [(1, 1), (2, 3), (3, 8), (5, 2), (8, 4), (8, 8)])
def test_same_tokens_for_every_lookahead_budget_and_pace(
    tiny: TinyModels, sampling: SamplingParams, plain: list[int], pace: Pace, lookahead: int, budget: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace, lookahead=lookahead, budget=budget)
    assert trio.generate(request(sampling)).tokens == plain
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("draft", ["draft", "random_draft"])
def test_same_tokens_while_the_planner_changes_its_mind(
    tiny: TinyModels, sampling: SamplingParams, pace: Pace, draft: str
) -> None:
    trio = InMemoryTrio(tiny.target, getattr(tiny, draft), pace=pace, lookahead=6, is_fixed=False)
    alone = InMemoryTrio(tiny.target, None)
    long = request(sampling, max_tokens=90)
    assert trio.generate(long).tokens == alone.generate(long).tokens
    trio.assert_all_blocks_free()


def test_same_tokens_with_hits_only(tiny: TinyModels, sampling: SamplingParams, plain: list[int]) -> None:
    # The draft is the target, and the budget reaches to "all accepted" from the start: every outcome is guessed.
    trio = InMemoryTrio(tiny.target, tiny.target, lookahead=3, budget=16)
    answer = trio.generate(request(sampling))
    assert answer.tokens == plain
    report = answer.finished.speculation
    assert (report.cache_misses, report.cache_late) == (0, 0)
    assert report.cache_hits > 0
    assert report.num_accepted_tokens > 0.9 * report.num_draft_tokens


def test_same_tokens_with_misses_only(tiny: TinyModels, sampling: SamplingParams, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, budget=0)  # nothing is prepared: draft and target take turns
    answer = trio.generate(request(sampling))
    assert answer.tokens == plain
    assert answer.finished.speculation.cache_hits == 0
    assert answer.finished.speculation.num_accepted_tokens > 0


@pytest.mark.parametrize("pace", [Pace.FAST, Pace.STEPWISE])
def test_same_tokens_without_waiting_after_misses(
    tiny: TinyModels, sampling: SamplingParams, plain: list[int], pace: Pace
) -> None:
    answer = InMemoryTrio(tiny.target, tiny.draft, pace=pace, just_in_time_ms=0).generate(request(sampling))
    assert answer.tokens == plain
    assert all(not report.drafting_ns or report.num_draft_tokens for report in answer.finished.speculation.rounds)


def test_same_seed_same_tokens_with_two_different_drafts(
    tiny: TinyModels, sampling: SamplingParams, plain: list[int]
) -> None:
    assert InMemoryTrio(tiny.target, tiny.draft).generate(request(sampling)).tokens == plain
    random_draft = InMemoryTrio(tiny.target, tiny.random_draft).generate(request(sampling))
    assert random_draft.tokens == plain


def test_other_seed_other_tokens(tiny: TinyModels) -> None:
    seeds = [SamplingParams(temperature=0.9, seed=seed) for seed in (1, 2)]
    first, second = (InMemoryTrio(tiny.target, tiny.draft).generate(request(item)).tokens for item in seeds)
    assert first != second


@pytest.mark.parametrize("killed_at", [1, 5, 9])
def test_same_tokens_when_the_speculator_dies_and_comes_back(
    tiny: TinyModels, sampling: SamplingParams, plain: list[int], killed_at: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, answer = trio.submit(request(sampling))
    for _ in range(killed_at):
        trio.step()
    trio.detach()
    for _ in range(4):
        trio.step()
    trio.attach()
    trio.run(answer)
    assert answer.tokens == plain
    lookups = [report.lookup for report in answer.finished.speculation.rounds]
    assert LookupResult.NOT_SPECULATED in lookups[:-1]
    assert answer.finished.speculation.speculating


def mixed_requests(sampling: SamplingParams) -> list[GenerationRequest]:
    """Eight prompts of different lengths with different seeds; half share a prefix."""
    prompts = [PROMPT[: 6 + 2 * i] if i % 2 else tuple((7 * i + j) % 250 for j in range(3 + 5 * i)) for i in range(8)]
    return [
        GenerationRequest(
            f"r{i}",
            prompt,
            SamplingParams(temperature=sampling.temperature, seed=sampling.seed + i),
            max_tokens=10 + 4 * i,
        )
        for i, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize("pace", [Pace.FAST, Pace.STEPWISE, Pace.LATE])
def test_each_of_eight_joining_and_leaving_equals_its_solo_run(
    tiny: TinyModels, sampling: SamplingParams, pace: Pace
) -> None:
    requests = mixed_requests(sampling)
    solo = [InMemoryTrio(tiny.target, None).generate(item).tokens for item in requests]
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace, max_running=5, prefill_chunk_tokens=9)
    answers: list[Answer] = []
    for item in requests:
        answers.append(trio.submit(item)[1])
        trio.step()
        trio.step()
    trio.run(*answers)
    assert [answer.tokens for answer in answers] == solo
    trio.assert_all_blocks_free()


def test_preempted_equals_not_preempted(tiny: TinyModels, sampling: SamplingParams) -> None:
    requests = mixed_requests(sampling)
    solo = [InMemoryTrio(tiny.target, None).generate(item).tokens for item in requests]
    trio = InMemoryTrio(tiny.target, tiny.draft, target_blocks=32, draft_blocks=64)  # 128 tokens for eight sequences
    answers = [trio.submit(item)[1] for item in requests]
    trio.run(*answers)
    assert trio.loop.scheduler.num_preemptions > 0
    assert [answer.tokens for answer in answers] == solo
    trio.assert_all_blocks_free()


def test_a_draft_short_of_blocks_costs_speed_and_no_token(
    tiny: TinyModels, sampling: SamplingParams, plain: list[int]
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, draft_blocks=10)
    answer = trio.generate(request(sampling))
    assert answer.tokens == plain
    trio.assert_all_blocks_free()
