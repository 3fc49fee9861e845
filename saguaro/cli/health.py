"""Asks a service whether it serves."""

from __future__ import annotations

import grpc

from saguaro.channel import Tls, channel_options, open_channel

_TIMEOUT_SECONDS = 2.0


def is_serving(address: str, tls: Tls | None = None) -> bool:
    """One question on a connection of its own; False also where nobody listens."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # not of the base package, which asks running gateways only

    with open_channel(address, tls, channel_options()) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_SECONDS
            )
        except grpc.RpcError:
            return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)
