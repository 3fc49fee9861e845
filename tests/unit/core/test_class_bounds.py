"""What a plan means for each traffic class: bounds on the one planner, never a plan of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from saguaro.core.class_bounds import bounded_plan
from saguaro.core.planner import Plan
from saguaro.types import ClassPolicy, TrafficClass

LATENCY, BALANCED, THROUGHPUT = TrafficClass
AUTO = ClassPolicy()
# Eight sequences, b* = 3: the batch does not wait, one alone would.
PLAN = Plan(6, False, 3.0, just_in_time_lookahead=5, predicted_rate=100.0, plain_rate=40.0)


def test_balanced_auto_is_the_planners_own_plan() -> None:
    for plan in (PLAN, replace(PLAN, waits_on_miss=True), Plan(0, False, 0.0)):
        assert bounded_plan(plan, BALANCED, AUTO, batch=8) == plan


@pytest.mark.parametrize(("threshold", "waits"), [(math.inf, True), (3.0, True), (1.0, False), (0.0, False)])
def test_latency_auto_waits_wherever_a_sequence_alone_would(threshold: float, waits: bool) -> None:
    plan = bounded_plan(replace(PLAN, break_even_batch=threshold), LATENCY, AUTO, batch=8)
    assert plan.waits_on_miss is waits
    assert plan.break_even_batch == (math.inf if waits else 0.0)
    assert plan.lookahead == PLAN.lookahead


def test_throughput_auto_never_waits_and_takes_the_planners_lookahead() -> None:
    plan = bounded_plan(replace(PLAN, waits_on_miss=True, break_even_batch=math.inf), THROUGHPUT, AUTO, batch=1)
    assert (plan.waits_on_miss, plan.break_even_batch, plan.lookahead) == (False, 0.0, 6)


@pytest.mark.parametrize("traffic_class", TrafficClass)
def test_a_given_threshold_is_obeyed_in_every_class(traffic_class: TrafficClass) -> None:
    bounds = ClassPolicy(break_even_batch=4.0)
    assert bounded_plan(PLAN, traffic_class, bounds, batch=3).waits_on_miss
    assert not bounded_plan(PLAN, traffic_class, bounds, batch=4).waits_on_miss


def test_a_lookahead_bound_cuts_the_plan_and_never_stretches_it() -> None:
    cut = bounded_plan(PLAN, BALANCED, ClassPolicy(max_lookahead=2), batch=1)
    assert (cut.lookahead, cut.just_in_time_lookahead) == (2, 2)
    assert bounded_plan(PLAN, BALANCED, ClassPolicy(max_lookahead=16), batch=1).lookahead == 6
    assert bounded_plan(PLAN, LATENCY, ClassPolicy(max_lookahead=0), batch=1).lookahead == 0


def test_nobody_waits_for_a_draft_of_no_tokens() -> None:
    probe = Plan(2, False, 0.0)
    assert not bounded_plan(probe, LATENCY, ClassPolicy(break_even_batch=math.inf), batch=1).waits_on_miss
