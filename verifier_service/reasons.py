"""Why the draft model does not draft for a sequence."""

from __future__ import annotations

from collections.abc import Collection

from saguaro.types import AcceptanceMode
from verifier_service.class_plans import ClassPlans
from verifier_service.sequence import Sequence


def why_not_drafted(
    sequence: Sequence, plans: ClassPlans, detached_reason: str | None, modes: Collection[AcceptanceMode]
) -> str:
    """In words; empty where it may be opened at the speculator. `modes`: those that the speculator drafts for."""
    if sequence.request.disable_speculation:
        return "the request asked for no speculation"
    if plans.max_lookahead == 0:
        return "the verifier's lookahead is 0"
    if plans.most(sequence.request.traffic_class) == 0:
        return "the policy of the request's traffic class is plain decoding"
    if detached_reason is not None:
        return detached_reason
    if plans.planner.rests:
        return "speculation does not pay at this load: plain decoding is the plan"
    if sequence.draft_mode not in modes:
        return "the speculator does not draft for the acceptance mode of the request"
    return ""
