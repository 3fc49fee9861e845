"""Traffic classes and their policies: proto <-> types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from saguaro.errors import InvalidRequest
from saguaro.types import AcceptanceMode, ClassPolicy, KeptPolicy, PolicyReport, TrafficClass, TrafficPolicy
from saguaro.v1 import common_pb2, gateway_pb2

_FIELDS = {traffic_class: traffic_class.name.lower() for traffic_class in TrafficClass}


def traffic_class_to_proto(traffic_class: TrafficClass) -> common_pb2.TrafficClass:
    """Our numbers are the contract's."""
    return cast(common_pb2.TrafficClass, traffic_class.value)


def traffic_class_from_proto(value: int) -> TrafficClass:
    """Balanced where there is none; InvalidRequest for a class that this version does not know."""
    try:
        return TrafficClass(value or TrafficClass.BALANCED)
    except ValueError:
        known = ", ".join(f"{item.name.lower()}={item.value}" for item in TrafficClass)
        raise InvalidRequest("traffic_class", f"traffic_class is {value}; it must be one of {known}") from None


def traffic_policy_to_proto(policy: TrafficPolicy) -> common_pb2.TrafficPolicy:
    """Every class is there."""
    return policy_changes_to_proto({item: policy.of(item) for item in TrafficClass})


def policy_changes_to_proto(changes: Mapping[TrafficClass, ClassPolicy]) -> common_pb2.TrafficPolicy:
    """These classes are there."""
    return common_pb2.TrafficPolicy(**{_FIELDS[item]: _to_proto(policy) for item, policy in changes.items()})


def traffic_policy_from_proto(message: common_pb2.TrafficPolicy) -> TrafficPolicy:
    """A class that is absent is `auto`. Raises as `policy_changes_from_proto`."""
    return TrafficPolicy().changed(policy_changes_from_proto(message))


def policy_changes_from_proto(message: common_pb2.TrafficPolicy) -> dict[TrafficClass, ClassPolicy]:
    """The classes that are there, not validated; InvalidRequest for an acceptance mode that is unknown here."""
    return {
        item: _from_proto(getattr(message, field), f"policy.{field}")
        for item, field in _FIELDS.items()
        if message.HasField(field)
    }


def policy_response(report: PolicyReport) -> gateway_pb2.GatewayServiceGetPolicyResponse:
    """What a gateway wants, and who keeps to it."""
    return gateway_pb2.GatewayServiceGetPolicyResponse(
        policy=traffic_policy_to_proto(report.policy), verifiers=map(_kept_to_proto, report.verifiers)
    )


def policy_change_response(report: PolicyReport) -> gateway_pb2.GatewayServiceSetPolicyResponse:
    """The same after a change."""
    return gateway_pb2.GatewayServiceSetPolicyResponse(
        policy=traffic_policy_to_proto(report.policy), verifiers=map(_kept_to_proto, report.verifiers)
    )


def policy_report_from_proto(
    message: gateway_pb2.GatewayServiceGetPolicyResponse | gateway_pb2.GatewayServiceSetPolicyResponse,
) -> PolicyReport:
    """Of a question or of a change."""
    verifiers = (KeptPolicy(item.address, item.in_force, item.reason) for item in message.verifiers)
    return PolicyReport(traffic_policy_from_proto(message.policy), tuple(verifiers))


def _kept_to_proto(kept: KeptPolicy) -> gateway_pb2.VerifierPolicy:
    return gateway_pb2.VerifierPolicy(address=kept.address, in_force=kept.in_force, reason=kept.reason)


def _to_proto(policy: ClassPolicy) -> common_pb2.ClassPolicy:
    return common_pb2.ClassPolicy(
        max_lookahead_tokens=policy.max_lookahead,
        break_even_batch=policy.break_even_batch,
        acceptance=cast(common_pb2.AcceptanceMode, int(policy.acceptance or 0)),
    )


def _from_proto(message: common_pb2.ClassPolicy, path: str) -> ClassPolicy:
    try:
        acceptance = AcceptanceMode(message.acceptance) if message.acceptance else None
    except ValueError:
        known = ", ".join(f"{mode.name.lower()}={mode.value}" for mode in AcceptanceMode)
        raise InvalidRequest(
            f"{path}.acceptance", f"acceptance is {message.acceptance}; it must be one of {known}"
        ) from None
    return ClassPolicy(
        message.max_lookahead_tokens if message.HasField("max_lookahead_tokens") else None,
        message.break_even_batch if message.HasField("break_even_batch") else None,
        acceptance,
    )
