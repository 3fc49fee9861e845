"""How far a verifier speculates: by measurements, or as a fixed policy has it."""

from __future__ import annotations

import re

from saguaro.config.services import POLICY_PATTERN
from saguaro.core.forward_time import ForwardTime
from saguaro.core.planner import FixedPolicy, Planner
from saguaro.errors import InvalidRequest

_START_LOOKAHEAD = 4  # until measurements say better
_AUTO = "auto"


def parse_policy(text: str) -> FixedPolicy | None:
    """ "fixed:K,B,b*" as a policy, "auto" as None. Raises InvalidRequest for another form."""
    if not re.match(POLICY_PATTERN, text):
        raise InvalidRequest("policy", f'policy is "{text}"; give auto, or fixed:K,B,b* as in fixed:4,16,inf')
    if text == _AUTO:
        return None
    lookahead, budget, threshold = text.removeprefix("fixed:").split(",")
    return FixedPolicy(int(lookahead), int(budget), float(threshold))


class Policies:
    """Planners by policy. What `auto` has measured stays while another is in force, and is not mixed with that."""

    def __init__(self, *, max_lookahead: int, max_budget: int) -> None:
        self.max_lookahead, self.max_budget = max_lookahead, max_budget
        self.forward = ForwardTime()  # the target's, whatever the policy
        self._auto = self._planner(None)

    def planner(self, text: str) -> tuple[Planner, int]:
        """Planner and budget. Raises InvalidRequest for another form, or for more than a verifier was started with."""
        fixed = parse_policy(text)
        if fixed is None:
            return self._auto, self.max_budget
        for name, given, limit in (
            ("K", fixed.lookahead, self.max_lookahead),
            ("B", fixed.budget, self.max_budget),
        ):
            if given > limit:
                raise InvalidRequest("policy", f"{text} has {name} = {given}; this verifier was started with {limit}")
        planner = self._planner(fixed)
        planner.next_step(batch=1)  # in force at once, not from the first step on
        return planner, fixed.budget

    def _planner(self, fixed: FixedPolicy | None) -> Planner:
        return Planner(
            max_lookahead=self.max_lookahead, start_lookahead=_START_LOOKAHEAD, fixed=fixed, forward=self.forward
        )
