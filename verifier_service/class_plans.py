"""Which plan each sequence follows: the planner's, within the bounds of its traffic class and of the speculator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from saguaro.core.class_bounds import bounded_plan
from saguaro.core.planner import Plan, Planner
from saguaro.types import TrafficClass, TrafficPolicy


@dataclass(frozen=True, slots=True)
class ClassPlans:
    """A value that is replaced whole, so that planner and policy change between two steps.

    A fixed plan is for experiments: it knows no classes. `max_lookahead`: what the speculator serves.
    """

    planner: Planner
    max_lookahead: int
    policy: TrafficPolicy = field(default_factory=TrafficPolicy)

    def plan(self, traffic_class: TrafficClass, batch: int) -> Plan:
        """What is in force for a sequence of the class, one of `batch`."""
        plan = self.planner.plan
        if not self.planner.is_fixed:
            plan = bounded_plan(plan, traffic_class, self.policy.of(traffic_class), batch)
        return plan if plan.lookahead <= self.max_lookahead else replace(plan, lookahead=self.max_lookahead)

    def lookahead(self, traffic_class: TrafficClass) -> int:
        """K in force for the class."""
        return self.plan(traffic_class, 1).lookahead

    def most(self, traffic_class: TrafficClass) -> int:
        """Draft tokens that a speculation of the class may ever have."""
        bound = None if self.planner.is_fixed else self.policy.of(traffic_class).max_lookahead
        return self.max_lookahead if bound is None else min(bound, self.max_lookahead)
