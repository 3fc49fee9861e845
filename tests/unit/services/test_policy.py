"""A policy that changes while sequences run changes their speed, never their tokens."""

from __future__ import annotations

import pytest

from saguaro.core.planner import RoundKind
from saguaro.errors import InvalidRequest
from saguaro.types import GenerationRequest, VerifierFrame
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio
from verifier_service.policy import Policies

REQUEST = GenerationRequest("r", tuple(range(60, 72)), max_tokens=60)


@pytest.mark.parametrize("text", ["", "fast", "fixed:4", "fixed:4,8", "fixed:-1,8,inf", "fixed:4,8,inf,", "auto "])
def test_another_form_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="policy is"):
        Policies(max_lookahead=8, max_budget=16).planner(text)


@pytest.mark.parametrize(("text", "limit"), [("fixed:9,1,0", "K = 9.*with 8"), ("fixed:1,17,0", "B = 17.*with 16")])
def test_more_than_the_verifier_was_started_with_is_refused(text: str, limit: str) -> None:
    with pytest.raises(InvalidRequest, match=limit):
        Policies(max_lookahead=8, max_budget=16).planner(text)


def test_a_fixed_policy_is_in_force_at_once() -> None:
    planner, budget = Policies(max_lookahead=8, max_budget=16).planner("fixed:7,12,3")
    assert (planner.plan.lookahead, planner.plan.break_even_batch, budget) == (7, 3.0, 12)
    assert planner.plan.waits_on_miss


def test_what_auto_has_measured_outlives_another_policy() -> None:
    policies = Policies(max_lookahead=8, max_budget=16)
    auto, _ = policies.planner("auto")
    auto.observe_lookup(hit=True, depth=3, after=RoundKind.HIT)
    known = auto.hit_rate
    fixed, _ = policies.planner("fixed:4,0,inf")
    for _ in range(50):
        fixed.observe_lookup(hit=False, depth=0, after=RoundKind.WAITED)
    fixed.forward.observe(1, 5_000_000)
    again, budget = policies.planner("auto")
    assert again is auto
    assert (again.hit_rate, budget) == (known, 16)
    # The target is the same, so its times count for all.
    assert again.forward.expect_ns(1) == 5_000_000


def test_a_change_in_mid_answer_leaves_the_tokens(tiny: TinyModels) -> None:
    plain = InMemoryTrio(tiny.target, None).generate(REQUEST)
    trio = InMemoryTrio(tiny.target, tiny.draft, lookahead=4, budget=8)
    policies = Policies(max_lookahead=4, max_budget=8)
    _, answer = trio.submit(REQUEST)
    for text in ("fixed:4,8,inf", "fixed:2,0,inf", "fixed:3,4,0", "auto"):
        trio.speculations.follow(*policies.planner(text))
        for _ in range(6):
            trio.step()
    trio.run(answer)
    assert answer.tokens == plain.tokens
    wishes = {(frame.lookahead, frame.budget) for frame in trio.frames if isinstance(frame, VerifierFrame)}
    assert {(4, 8), (2, 0), (3, 4)} <= wishes


def test_rounds_of_which_no_outcome_was_wanted_teach_the_speculator_nothing(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, lookahead=4, budget=8)
    trio.speculations.follow(*Policies(max_lookahead=4, max_budget=8).planner("fixed:4,0,inf"))
    _, answer = trio.submit(REQUEST)
    while not trio.stream.sessions:
        trio.step()
    (session,) = trio.stream.sessions.values()
    after_miss = trio.stream.statistics_for(session)
    untaught = after_miss.ranks_after_rejection.gains()
    trio.run(answer)
    assert answer.finished.speculation.num_rounds > 10
    assert after_miss.ranks_after_rejection.gains() == untaught
