"""The planner's plan as one traffic class has it: the same measurements and formulas, within the class's bounds."""

from __future__ import annotations

import math
from dataclasses import replace

from saguaro.core.planner import Plan
from saguaro.types import ClassPolicy, TrafficClass

_ALONE = 1.0


def bounded_plan(plan: Plan, traffic_class: TrafficClass, bounds: ClassPolicy, batch: int) -> Plan:
    """What `plan`, made for a batch of that many sequences, means for those of one class.

    Where the class's b* is `auto`: `balanced` is the plan as it stands. `latency` waits wherever a wait brings the
    sequence itself on sooner, that is where the plan's b* is above 1: others do not wait with it, they only miss its
    rows in their forward. `throughput` never waits, for its place in the next forward is worth more to the batch.
    """
    lookahead = plan.lookahead if bounds.max_lookahead is None else min(plan.lookahead, bounds.max_lookahead)
    threshold, waits = bounds.break_even_batch, plan.waits_on_miss
    if threshold is not None:
        waits = batch < threshold
    elif traffic_class is TrafficClass.LATENCY:
        waits = plan.break_even_batch > _ALONE
        threshold = math.inf if waits else 0.0
    elif traffic_class is TrafficClass.THROUGHPUT:
        threshold, waits = 0.0, False
    else:
        threshold = plan.break_even_batch
    return replace(
        plan,
        lookahead=lookahead,
        waits_on_miss=waits and plan.just_in_time_lookahead > 0,
        break_even_batch=threshold,
        just_in_time_lookahead=min(plan.just_in_time_lookahead, lookahead),
    )
