"""Every sampling parameter, alone and in pairs: with speculation the tokens and logprobs are those without it."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from saguaro.core.penalties import SequenceRules
from saguaro.types import FinishReason, GenerationRequest, PromptLogprobs, SamplingParams, TokenLogprobs, TokenRun
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace

PROMPT = tuple(range(40, 63))
EOS = 17

PARAMETERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.9},
    "top_p": {"temperature": 1.0, "top_p": 0.9},
    "top_k": {"temperature": 1.0, "top_k": 12},
    "min_p": {"temperature": 1.2, "min_p": 0.05},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 0.8},
    "logit_bias": {"logit_bias": (*((token, 3.0) for token in range(0, 250, 9)), (EOS, 5.0))},
    "seed": {"seed": 2**64 - 3},
    "choice": {"choice": 2},
    "min_tokens": {"min_tokens": 12},
    "stop_token_ids": {"stop_token_ids": tuple(range(0, 256, 25))},
    "max_tokens": {"max_tokens": 17},
    "ignore_eos": {"ignore_eos": True},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "prompt_logprobs": {"prompt_logprobs": True, "top_logprobs": 2},
}
OF_THE_REQUEST = {"max_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "top_logprobs"}
PAIRS = list(combinations_with_replacement(PARAMETERS, 2))


def request_with(*names: str) -> GenerationRequest:
    chosen = {name: value for parameter in names for name, value in PARAMETERS[parameter].items()}
    sampling = SamplingParams(**{name: value for name, value in chosen.items() if name not in OF_THE_REQUEST})
    of_the_request = {name: value for name, value in chosen.items() if name in OF_THE_REQUEST}
    return GenerationRequest("r", PROMPT, sampling, **{"max_tokens": 24, **of_the_request})


@cache
def trio_of(target: Path, draft: Path | None) -> InMemoryTrio:
    return InMemoryTrio(target, draft, lookahead=3, budget=5, eos_token_ids=[EOS], prefill_chunk_tokens=10)


@cache
def plain_answer(target: Path, request: GenerationRequest) -> Answer:
    return trio_of(target, None).generate(request)


def logprobs_of(answer: Answer) -> list[TokenLogprobs]:
    runs = [item for event in answer.events if isinstance(event, TokenRun) for item in event.logprobs]
    return [item for event in answer.events if isinstance(event, PromptLogprobs) for item in event.logprobs] + runs


def assert_same_logprobs(ours: list[TokenLogprobs], theirs: list[TokenLogprobs]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_each_parameter_and_each_pair_gives_the_same_with_and_without_speculation(
    tiny: TinyModels, one: str, other: str
) -> None:
    request = request_with(one, other)
    plain = plain_answer(tiny.target, request)
    trio = trio_of(tiny.target, tiny.draft)
    trio.pace = (Pace.FAST, Pace.STEPWISE, Pace.LATE)[PAIRS.index((one, other)) % 3]
    drafted = trio.generate(request)
    assert drafted.tokens == plain.tokens
    assert drafted.finished.reason == plain.finished.reason
    assert_same_logprobs(logprobs_of(drafted), logprobs_of(plain))
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_changes_the_answer(tiny: TinyModels, name: str) -> None:
    """Otherwise the matrix would say nothing of it."""
    base: tuple[str, ...] = ()  # greedy
    if name in ("seed", "choice"):
        base = ("temperature",)
    elif name in ("min_tokens", "ignore_eos"):
        base = ("logit_bias",)  # with it the answer ends early
    without, with_it = (plain_answer(tiny.target, request_with(*names)) for names in (base, (*base, name)))
    assert (with_it.tokens, logprobs_of(with_it)) != (without.tokens, logprobs_of(without))


def test_acceptance_does_not_suffer_from_penalties(tiny: TinyModels) -> None:
    # Where the draft is the target, every draft token stands, unless the two process logits differently.
    trio = InMemoryTrio(tiny.target, tiny.target, lookahead=3, budget=16)
    sampling = SamplingParams(
        temperature=0.9, seed=4, min_p=0.01, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3,
        logit_bias=((90, 2.0), (91, -3.0)), min_tokens=30, stop_token_ids=tuple(range(0, 256, 5)),
    )  # fmt: skip
    report = trio.generate(GenerationRequest("r", PROMPT, sampling, max_tokens=40)).finished.speculation
    assert report.num_accepted_tokens > 0.9 * report.num_draft_tokens > 0


def test_greedy_with_a_repetition_penalty_equals_transformers_generate(tiny: TinyModels) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    expected = model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False, max_new_tokens=60,
        eos_token_id=None, repetition_penalty=1.25,
    )  # fmt: skip
    request = GenerationRequest("r", PROMPT, SamplingParams(repetition_penalty=1.25), max_tokens=60)
    answer = InMemoryTrio(tiny.target, tiny.draft).generate(request)
    assert answer.tokens == expected[0, len(PROMPT) :].tolist()
    assert answer.finished.speculation.num_accepted_tokens > 0


def test_greedy_with_bias_penalty_and_min_tokens_equals_transformers_generate(tiny: TinyModels) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    bias = {(token,): 2.0 for token in range(0, 250, 9)} | {(EOS,): 8.0}
    expected = model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False, max_new_tokens=60,
        eos_token_id=EOS, repetition_penalty=1.1, min_new_tokens=11, sequence_bias=bias, pad_token_id=0,
    )  # fmt: skip
    biases = tuple((token, value) for (token,), value in bias.items())
    sampling = SamplingParams(repetition_penalty=1.1, min_tokens=11, logit_bias=biases)
    trio = InMemoryTrio(tiny.target, tiny.draft, eos_token_ids=[EOS])
    answer = trio.generate(GenerationRequest("r", PROMPT, sampling, max_tokens=60))
    assert answer.tokens == expected[0, len(PROMPT) :].tolist()
    assert answer.tokens[-1] == EOS
    assert len(answer.tokens) == 12


def test_logprobs_are_those_of_a_forward_of_transformers_own(tiny: TinyModels) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    sampling = SamplingParams(temperature=1.1, seed=3, top_k=9, repetition_penalty=1.4)  # raw: these do not show
    request = GenerationRequest(
        "r", PROMPT, sampling, max_tokens=20, logprobs=True, prompt_logprobs=True, top_logprobs=4
    )
    answer = InMemoryTrio(tiny.target, tiny.draft, prefill_chunk_tokens=9).generate(request)
    tokens = torch.tensor([[*PROMPT, *answer.tokens]])
    expected = model(tokens).logits[0, :-1].log_softmax(-1)
    reported = logprobs_of(answer)
    assert len(reported) == len(expected) == len(PROMPT) - 1 + 20
    own = torch.tensor([item.logprob for item in reported])
    torch.testing.assert_close(own, expected.gather(1, tokens[0, 1:, None])[:, 0], atol=1e-4, rtol=0)
    assert [[token for token, _ in item.top] for item in reported] == expected.topk(4).indices.tolist()


def test_scoring_a_prompt_computes_it_anew_and_once(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    trio.generate(GenerationRequest("r", PROMPT, max_tokens=4))
    scored = trio.generate(GenerationRequest("r", PROMPT, max_tokens=4, prompt_logprobs=True))
    assert scored.finished.num_cached_prompt_tokens == 0
    assert [type(event) for event in scored.events[:2]] == [PromptLogprobs, TokenRun]
    assert len(logprobs_of(scored)) == len(PROMPT) - 1
    single = trio.generate(GenerationRequest("r", (5,), max_tokens=2, prompt_logprobs=True))
    assert single.events[0] == PromptLogprobs(())
    trio.assert_all_blocks_free()


def test_a_preempted_sequence_with_penalties_and_prompt_logprobs_says_the_same(tiny: TinyModels) -> None:
    sampling = SamplingParams(temperature=0.8, repetition_penalty=1.2, frequency_penalty=0.5)
    requests = [
        GenerationRequest(f"r{i}", PROMPT[: 8 + 2 * i], sampling, max_tokens=24, prompt_logprobs=True, logprobs=True)
        for i in range(6)
    ]
    solo = [InMemoryTrio(tiny.target, None).generate(item) for item in requests]
    trio = InMemoryTrio(tiny.target, tiny.draft, target_blocks=24, draft_blocks=64)
    answers = [trio.submit(item)[1] for item in requests]
    trio.run(*answers)
    assert trio.loop.scheduler.num_preemptions > 0
    for answer, alone in zip(answers, solo, strict=True):
        assert answer.tokens == alone.tokens
        assert_same_logprobs(logprobs_of(answer), logprobs_of(alone))
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("end", range(1, 12))
def test_the_earliest_of_end_token_stop_token_and_max_tokens_inside_a_run_wins(tiny: TinyModels, end: int) -> None:
    plain = InMemoryTrio(tiny.target, None).generate(GenerationRequest("r", PROMPT, max_tokens=30)).tokens
    first = {token: plain.index(token) for token in (plain[end], plain[12])}
    trio = InMemoryTrio(tiny.target, tiny.target, eos_token_ids=[plain[12]])  # hits only, so runs are long
    sampling = SamplingParams(stop_token_ids=(plain[end],))
    for max_tokens in (end, 30):
        answer = trio.generate(GenerationRequest("r", PROMPT, sampling, max_tokens=max_tokens, logprobs=True))
        stop = min(first.values()) + 1
        assert answer.tokens == plain[: min(stop, max_tokens)]
        assert answer.finished.reason is (FinishReason.STOP if stop <= max_tokens else FinishReason.LENGTH)
        assert answer.finished.num_generated_tokens == len(answer.tokens) == len(logprobs_of(answer))


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_generation_that_is_told_to_stop_ends_at_once_with_its_last_event(
    tiny: TinyModels, pace: Pace, steps: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace)
    sequence, answer = trio.submit(GenerationRequest("r", PROMPT, max_tokens=60))
    for _ in range(steps):
        trio.step()
    trio.loop.stop(sequence)
    trio.loop.step()
    assert answer.finished.reason is FinishReason.ABORTED
    assert answer.finished.num_generated_tokens == len(answer.tokens) < 60
    trio.loop.stop(sequence)  # and once more
    trio.assert_all_blocks_free()
    assert sum(event is answer.finished for event in answer.events) == 1


def test_choices_that_begin_after_the_first_has_its_token_share_the_prompt_s_blocks(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)  # blocks of four tokens
    requests = [
        GenerationRequest(f"r{i}", PROMPT, SamplingParams(1.0, seed=6, choice=i), max_tokens=20) for i in range(3)
    ]
    first = trio.submit(requests[0])[1]
    while not first.tokens:
        trio.step()
    others = [trio.submit(item)[1] for item in requests[1:]]
    trio.run(first, *others)
    assert [answer.finished.num_cached_prompt_tokens for answer in (first, *others)] == [0, 20, 20]
    assert len({tuple(answer.tokens) for answer in (first, *others)}) == 3  # equal by chance: odds below 1e-9
    trio.assert_all_blocks_free()


def test_a_sequence_without_rules_makes_none(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, eos_token_ids=[EOS])
    sequence, _ = trio.submit(GenerationRequest("r", PROMPT, SamplingParams(0.7, 0.9, 20, min_p=0.1)))
    assert sequence.rules is None
    assert SequenceRules.of(sequence.sampling, PROMPT, len(PROMPT)) is None
