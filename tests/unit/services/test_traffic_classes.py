"""Sequences of several traffic classes in one batch: each within its bounds, all with the tokens of plain decoding."""

from __future__ import annotations

import math

import pytest

from saguaro.core.planner import Planner
from saguaro.types import (
    ClassPolicy,
    GenerationRequest,
    JustInTime,
    LookupResult,
    TrafficClass,
    TrafficPolicy,
    VerifierFrame,
)
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace
from verifier_service.metrics import VerifierCollector

LATENCY, BALANCED, THROUGHPUT = TrafficClass
PROMPT = tuple(range(60, 72))


def asks(traffic_class: TrafficClass) -> GenerationRequest:
    return GenerationRequest("r", PROMPT, max_tokens=60, include_rounds=True, traffic_class=traffic_class)


def free_trio(tiny: TinyModels, policy: TrafficPolicy, pace: Pace = Pace.FAST) -> InMemoryTrio:
    """A trio whose planner is free, but for the bounds."""
    trio = InMemoryTrio(tiny.target, tiny.draft, lookahead=4, budget=8, is_fixed=False, pace=pace)
    trio.speculations.keep_to(policy)
    return trio


def drafted(answer: Answer) -> list[int]:
    return [report.num_draft_tokens for report in answer.finished.speculation.rounds]


@pytest.fixture(scope="module")
def plain_tokens(tiny: TinyModels) -> list[int]:
    return InMemoryTrio(tiny.target, None).generate(asks(BALANCED)).tokens


def test_each_class_keeps_to_its_own_lookahead_in_one_batch(tiny: TinyModels, plain_tokens: list[int]) -> None:
    trio = free_trio(tiny, TrafficPolicy(latency=ClassPolicy(max_lookahead=2)))
    bounded, free = (trio.submit(asks(item))[1] for item in (LATENCY, THROUGHPUT))
    trio.run(bounded, free)
    assert bounded.tokens == free.tokens == plain_tokens
    assert max(drafted(bounded)) == 2
    assert max(drafted(free)) > 2
    # The speculator is told, so that it drafts nothing in vain.
    frames = [frame for frame in trio.frames if isinstance(frame, VerifierFrame)]
    wishes = {frame.lookahead: {item.sequence_id for item in frame.commits} for frame in frames if frame.commits}
    assert max(wishes) > 2
    assert all(len(sequences) == 1 for lookahead, sequences in wishes.items() if lookahead > 2)


def test_a_bound_that_comes_in_mid_answer_holds_from_the_next_round_on(
    tiny: TinyModels, plain_tokens: list[int]
) -> None:
    trio = free_trio(tiny, TrafficPolicy())
    sequence, answer = trio.submit(asks(LATENCY))
    while sequence.num_generated < 25:
        trio.step()
    changed_in, policy = sequence.round, TrafficPolicy(latency=ClassPolicy(max_lookahead=1))
    trio.speculations.keep_to(policy)
    trio.run(answer)
    assert answer.tokens == plain_tokens
    assert max(drafted(answer)[:changed_in]) > 1
    assert max(drafted(answer)[changed_in + 1 :]) == 1


@pytest.mark.parametrize("traffic_class", [LATENCY, THROUGHPUT])
def test_latency_waits_for_a_draft_and_throughput_does_not(
    tiny: TinyModels, traffic_class: TrafficClass, plain_tokens: list[int]
) -> None:
    trio = free_trio(tiny, TrafficPolicy(latency=ClassPolicy(break_even_batch=math.inf)), Pace.LATE)
    _, answer = trio.submit(asks(traffic_class))
    trio.run(answer)
    assert answer.tokens == plain_tokens
    commits = [item for frame in trio.frames if isinstance(frame, VerifierFrame) for item in frame.commits]
    waited = [item for item in commits if isinstance(item.speculation, JustInTime)]
    assert bool(waited) is (traffic_class is LATENCY)


def test_a_class_without_lookahead_decodes_plainly_and_leaves_the_speculator(
    tiny: TinyModels, plain_tokens: list[int]
) -> None:
    trio = free_trio(tiny, TrafficPolicy())
    sequence, answer = trio.submit(asks(THROUGHPUT))
    while sequence.num_generated < 20:
        trio.step()
    trio.speculations.keep_to(TrafficPolicy(throughput=ClassPolicy(max_lookahead=0)))
    changed_in = sequence.round
    while sequence.num_generated < 40:
        trio.step()
    assert trio.scheduler.num_sequences == 0
    trio.speculations.keep_to(TrafficPolicy())
    allowed_in = sequence.round
    trio.run(answer)
    assert answer.tokens == plain_tokens
    rounds = answer.finished.speculation.rounds
    assert {report.lookup for report in rounds[changed_in:allowed_in]} == {LookupResult.NOT_SPECULATED}
    assert max(drafted(answer)[changed_in + 1 : allowed_in]) == 0
    assert max(drafted(answer)[allowed_in:]) > 0
    trio.assert_all_blocks_free()


def test_a_request_whose_class_decodes_plainly_is_told_why(tiny: TinyModels) -> None:
    trio = free_trio(tiny, TrafficPolicy(throughput=ClassPolicy(max_lookahead=0)))
    report = trio.generate(asks(THROUGHPUT)).finished.speculation
    assert not report.speculating
    assert report.reason == "the policy of the request's traffic class is plain decoding"


def test_a_scrape_of_the_verifier_agrees_with_the_reports(tiny: TinyModels) -> None:
    trio = free_trio(tiny, TrafficPolicy(latency=ClassPolicy(max_lookahead=2, break_even_batch=5.0)))
    answers = [trio.submit(asks(item))[1] for item in (LATENCY, THROUGHPUT)]
    trio.run(*answers)
    seen = {
        (sample.name.removeprefix("saguaro_"), *sample.labels.values()): sample.value
        for family in VerifierCollector(lambda: trio.loop).collect()
        for sample in family.samples
    }
    reports = [answer.finished.speculation for answer in answers]
    assert seen["rounds_total",] == sum(report.num_rounds for report in reports)
    assert seen["spec_decode_num_draft_tokens_total",] == sum(report.num_draft_tokens for report in reports)
    accepted = sum(report.num_accepted_tokens for report in reports)
    assert seen["spec_decode_num_accepted_tokens_total",] == accepted > 0
    assert accepted == sum(value for (name, *_), value in seen.items() if name.endswith("_per_pos_total"))
    assert seen["speculation_cache_lookups_total", "hit"] == sum(report.cache_hits for report in reports)
    assert seen["generation_tokens_total",] == 120
    assert seen["lookahead_tokens", "latency"] <= 2
    assert seen["break_even_batch", "latency"] == 5.0
    assert seen["break_even_batch", "throughput"] == 0.0
    assert (seen["num_requests_running",], seen["kv_cache_usage_perc",]) == (0, 0)
    assert seen["request_queue_time_seconds_count",] == 2
    assert not list(VerifierCollector(lambda: None).collect())


def test_while_plain_decoding_is_the_plan_nothing_is_told_to_the_speculator_and_then_it_is_opened_anew(
    tiny: TinyModels, plain_tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = free_trio(tiny, TrafficPolicy())
    sequence, answer = trio.submit(asks(BALANCED))
    while sequence.num_generated < 15:
        trio.step()
    monkeypatch.setattr(Planner, "rests", True)
    trio.step()
    trio.step()
    speculating, reason = trio.speculations.state_of(sequence)
    assert not speculating
    assert "plain decoding is the plan" in reason
    quiet_since = len(trio.frames)
    while sequence.num_generated < 30:
        trio.step()
    told = [frame for frame in trio.frames[quiet_since:] if isinstance(frame, VerifierFrame)]
    assert not any(frame.opens or frame.commits for frame in told)
    monkeypatch.setattr(Planner, "rests", False)
    trio.run(answer)
    assert answer.tokens == plain_tokens
    later = [frame for frame in trio.frames[quiet_since:] if isinstance(frame, VerifierFrame)]
    assert sum(len(frame.opens) for frame in later) == 1
    assert answer.finished.speculation.speculating
