"""The policy of a deployment as people write it: in the settings file, and at the gateway's admin port.

[gateway.policy.latency]
break_even_batch = "inf"
max_lookahead = 6
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from saguaro.types import AcceptanceMode, ClassPolicy, PolicyReport, TrafficClass, TrafficPolicy

_AUTO = "auto"


def _none_for_auto(value: object) -> object:
    return None if value == _AUTO else value


_Auto = BeforeValidator(_none_for_auto)


class ClassPolicySettings(BaseModel):
    """Bounds on the planner for one traffic class; what is `auto`, or left out, follows from measurements."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_lookahead: Annotated[
        Annotated[int, Field(ge=0, le=16)] | None,
        _Auto,
        Field(description="most draft tokens in a speculation (K); 0 decodes plainly"),
    ] = None
    break_even_batch: Annotated[
        Annotated[float, Field(ge=0)] | None,
        _Auto,
        Field(description="b*: a miss waits for a speculation below this many running sequences; inf always"),
    ] = None
    acceptance: Annotated[
        Literal["coupled", "rejection"] | None, _Auto, Field(description="mode of requests that name none")
    ] = None

    def class_policy(self) -> ClassPolicy:
        """As the services have it."""
        acceptance = None if self.acceptance is None else AcceptanceMode[self.acceptance.upper()]
        return ClassPolicy(self.max_lookahead, self.break_even_batch, acceptance)


class PolicySettings(BaseModel):
    """A policy by traffic class; classes that are left out are not spoken of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency: ClassPolicySettings | None = None
    balanced: ClassPolicySettings | None = None
    throughput: ClassPolicySettings | None = None

    def by_class(self) -> dict[TrafficClass, ClassPolicy]:
        """The classes that are there."""
        given = {item: getattr(self, item.name.lower()) for item in TrafficClass}
        return {item: policy.class_policy() for item, policy in given.items() if policy is not None}

    def __str__(self) -> str:
        """As a flag says it."""
        return json.dumps(self.model_dump(exclude_none=True))


def policy_document(policy: TrafficPolicy) -> dict[str, Any]:
    """The policy as JSON that `PolicySettings` reads back: every field of every class."""
    return {item.name.lower(): _class_document(policy.of(item)) for item in TrafficClass}


def policy_report_document(report: PolicyReport) -> dict[str, Any]:
    """The policy as of `policy_document`, and who keeps to it."""
    verifiers = [
        {"address": item.address, "in_force": item.in_force, "reason": item.reason or None} for item in report.verifiers
    ]
    return {"policy": policy_document(report.policy), "verifiers": verifiers}


def _class_document(policy: ClassPolicy) -> dict[str, Any]:
    threshold = policy.break_even_batch
    return {
        "max_lookahead": _AUTO if policy.max_lookahead is None else policy.max_lookahead,
        # JSON has no infinity.
        "break_even_batch": _AUTO if threshold is None else "inf" if math.isinf(threshold) else threshold,
        "acceptance": _AUTO if policy.acceptance is None else policy.acceptance.name.lower(),
    }
