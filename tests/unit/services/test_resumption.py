"""A generation that goes on at another verifier: in coupled mode with the very tokens that would have come."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from saguaro.errors import InvalidRequest
from saguaro.types import (
    AcceptanceMode,
    FinishReason,
    GenerationRequest,
    ModelIdentity,
    Resumption,
    SamplingParams,
    TokenRun,
)
from tests.unit.services.conftest import TinyModels
from tests.unit.services.constrained import CONSTRAINTS, House
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio
from tests.unit.services.test_sampling_parameters import (
    EOS,
    PROMPT,
    assert_same_logprobs,
    logprobs_of,
    request_with,
    trio_of,
)
from verifier_service.service import validate

# What depends on the tokens before, alone or together.
HISTORIES: tuple[tuple[str, ...], ...] = (
    ("temperature", "choice", "max_tokens"),
    ("repetition_penalty", "logprobs"),
    ("presence_penalty",),
    ("frequency_penalty",),
    ("logit_bias", "min_tokens"),
    ("stop_token_ids", "temperature"),
    ("temperature", "repetition_penalty", "frequency_penalty", "logit_bias", "min_tokens", "logprobs"),
)


@cache
def whole_answer(target: Path, request: GenerationRequest) -> Answer:
    return trio_of(target, None).generate(request)


def resumed_after(answer: Answer, num_runs: int, request: GenerationRequest) -> GenerationRequest:
    """The request as another verifier gets it when the first was lost after that many runs."""
    tokens = tuple(token for run in answer.runs[:num_runs] for token in run.token_ids)
    return replace(request, resumption=Resumption(tokens, num_runs))


@pytest.mark.parametrize("names", HISTORIES, ids="+".join)
def test_whatever_depends_on_history_goes_on_as_if_nothing_had_happened(
    tiny: TinyModels, names: tuple[str, ...]
) -> None:
    request = request_with(*names)
    whole = whole_answer(tiny.target, request)
    first = trio_of(tiny.target, tiny.draft).generate(request)
    for num_runs in {1, len(first.runs) // 2, len(first.runs)}:
        asked = resumed_after(first, num_runs, request)
        assert asked.resumption is not None
        num_before = len(asked.resumption.token_ids)
        second = InMemoryTrio(tiny.target, tiny.draft, lookahead=3, budget=5, eos_token_ids=[EOS])
        rest = second.generate(asked)
        assert [*asked.resumption.token_ids, *rest.tokens] == whole.tokens
        assert rest.finished.reason is whole.finished.reason
        assert rest.finished.num_generated_tokens == len(whole.tokens)
        assert rest.finished.num_prompt_tokens == len(PROMPT)
        assert_same_logprobs(logprobs_of(rest), logprobs_of(whole)[num_before:])
        second.assert_all_blocks_free()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_the_grammar_goes_on_from_where_the_output_stands(tiny: TinyModels, kind: str) -> None:
    house = House.of(tiny)
    request = house.request(CONSTRAINTS[kind], temperature=0.8, seed=3)
    whole = house.trio(None).generate(request)
    first = house.trio().generate(request)
    for num_runs in {1, len(first.runs) // 2, len(first.runs)}:
        asked = resumed_after(first, num_runs, request)
        assert asked.resumption is not None
        rest = house.trio().generate(asked)
        assert [*asked.resumption.token_ids, *rest.tokens] == whole.tokens
        assert rest.finished.reason is whole.finished.reason


def test_in_rejection_mode_the_draws_go_on_from_their_position(tiny: TinyModels) -> None:
    # Speculated, other drafts make other tokens by the same law; plain, the draws alone decide.
    sampling = SamplingParams(0.9, seed=8, acceptance=AcceptanceMode.REJECTION)
    request = GenerationRequest("r", PROMPT, sampling, max_tokens=20)
    whole = InMemoryTrio(tiny.target, None).generate(request)
    rest = InMemoryTrio(tiny.target, None).generate(resumed_after(whole, 7, request))
    assert [*whole.tokens[:7], *rest.tokens] == whole.tokens
    drafted = InMemoryTrio(tiny.target, tiny.draft).generate(resumed_after(whole, 7, request))
    assert drafted.finished.num_generated_tokens == 20
    assert drafted.finished.speculation.num_accepted_tokens > 0


def test_rounds_go_on_counting_and_add_up_to_the_tokens(tiny: TinyModels) -> None:
    request = replace(request_with("temperature"), include_rounds=True)
    trio = trio_of(tiny.target, tiny.draft)
    first = trio.generate(request)
    half = len(first.runs) // 2
    asked = resumed_after(first, half, request)
    rest = InMemoryTrio(tiny.target, tiny.draft, lookahead=3, budget=5).generate(asked)
    reports = [run.report for run in (*first.runs[:half], *rest.runs)]
    assert [report.round for report in reports if report] == list(range(len(reports)))
    assert tuple(run.report for run in rest.runs) == rest.finished.speculation.rounds
    accepted = sum(report.num_accepted_tokens for report in reports if report)
    assert len(reports) + accepted == len(first.tokens)
    assert rest.finished.speculation.num_rounds == len(rest.runs)
    assert rest.finished.speculation.num_accepted_tokens > 0  # speculated from its first round on


def test_what_the_first_verifier_left_in_the_prefix_cache_is_reused(tiny: TinyModels) -> None:
    request = request_with("max_tokens")
    trio = InMemoryTrio(tiny.target, None)  # blocks of four tokens
    first = trio.generate(request)
    asked = resumed_after(first, 10, request)
    rest = trio.generate(asked)
    assert rest.finished.num_cached_prompt_tokens == len(PROMPT)
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_generation_whose_end_alone_was_lost_ends_at_once(tiny: TinyModels, reason: FinishReason) -> None:
    tokens = whole_answer(tiny.target, request_with("max_tokens")).tokens
    sampling = SamplingParams(stop_token_ids=(tokens[-1],) if reason is FinishReason.STOP else ())
    emitted = Resumption(tuple(tokens), len(tokens))
    request = GenerationRequest("r", PROMPT, sampling, max_tokens=len(tokens), resumption=emitted)
    trio = InMemoryTrio(tiny.target, tiny.draft)
    answer = trio.generate(request)
    assert answer.tokens == []
    assert (answer.finished.reason, answer.finished.num_generated_tokens) == (reason, len(tokens))
    assert answer.finished.speculation.num_rounds == 0
    trio.assert_all_blocks_free()


def test_a_resumed_generation_can_be_preempted(tiny: TinyModels) -> None:
    requests = [
        GenerationRequest(f"r{i}", PROMPT[: 8 + 2 * i], SamplingParams(0.8, frequency_penalty=0.5), max_tokens=24)
        for i in range(6)
    ]
    solo = [InMemoryTrio(tiny.target, None).generate(item) for item in requests]
    trio = InMemoryTrio(tiny.target, tiny.draft, target_blocks=24, draft_blocks=64)
    asked = [resumed_after(answer, 3 + i, item) for i, (answer, item) in enumerate(zip(solo, requests, strict=True))]
    answers = [trio.submit(item)[1] for item in asked]
    trio.run(*answers)
    assert trio.loop.scheduler.num_preemptions > 0
    for i, (answer, alone) in enumerate(zip(answers, solo, strict=True)):
        assert answer.tokens == alone.tokens[3 + i :]
    trio.assert_all_blocks_free()


MODEL = ModelIdentity("m", "f" * 64, 256, 64, "float32")


@pytest.mark.parametrize(
    ("field", "resumption", "options"),
    [
        ("emitted_token_ids", Resumption((5, 256), 1), {}),
        ("emitted_token_ids", Resumption((5,) * 5, 1), {"max_tokens": 4}),
        ("emitted_token_ids", Resumption((5,) * 42, 1), {}),
        ("num_rounds", Resumption((5,), 0), {}),
        ("num_rounds", Resumption((5,), 2), {}),
        ("num_rounds", Resumption((), 1), {}),
        ("generation.prompt_logprobs", Resumption((5,), 1), {"prompt_logprobs": True}),
    ],
)
def test_what_a_request_cannot_have_emitted_is_refused_by_the_field(
    field: str, resumption: Resumption, options: dict[str, int]
) -> None:
    request = GenerationRequest("r", PROMPT, resumption=resumption, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest) as refused:
        validate(request, MODEL, MODEL.usable_vocabulary_tokens)
    assert refused.value.field == field
    served = replace(request, resumption=Resumption((5, 6, 7), 2), **dict.fromkeys(options))  # type: ignore[arg-type]
    validate(served, MODEL, MODEL.usable_vocabulary_tokens)


def test_runs_carry_the_report_of_their_round(tiny: TinyModels) -> None:
    request = replace(request_with("temperature"), include_rounds=True)
    answer = trio_of(tiny.target, tiny.draft).generate(request)
    runs = [event for event in answer.events if isinstance(event, TokenRun)]
    assert tuple(run.report for run in runs) == answer.finished.speculation.rounds
