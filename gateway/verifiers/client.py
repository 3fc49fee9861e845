"""The gateway's line to one verifier: who it is, whether it serves, how busy it is, and generations by token ids."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.verifiers.away import VerifierAway, failed
from gateway.verifiers.relay import Relay
from saguaro.channel import Tls, channel_options, dialled_at, open_aio_channel
from saguaro.errors import DeadlineExceeded, Incompatible, SaguaroError, Unavailable
from saguaro.types import PROTOCOL_VERSION, GenerationEvent, GenerationRequest, TrafficPolicy, VerifierInfo
from saguaro.v1 import verifier_pb2, verifier_pb2_grpc
from saguaro.wire.message_limit import limit_of
from saguaro.wire.policy import traffic_policy_to_proto
from saguaro.wire.verifier import verifier_info_from_proto

_ANSWER_SECONDS = 5.0  # for what a verifier answers at once
_POLICY_SECONDS = 1.0  # within which a change is in force


class VerifierClient:
    """One channel to one verifier. `close` ends it and every generation on it."""

    def __init__(
        self, address: str, *, max_message_bytes: int, keepalive_seconds: float, tls: Tls | None = None
    ) -> None:
        self.peer = f"the verifier at {dialled_at(address, tls)}"
        options = channel_options(max_message_bytes=max_message_bytes, keepalive_seconds=keepalive_seconds)
        self._channel = open_aio_channel(address, tls, options)
        self._stub: Any = verifier_pb2_grpc.VerifierServiceStub(self._channel)
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)
        self._max_message_bytes = max_message_bytes
        self._relay = Relay(self._stub, self.peer, max_message_bytes=max_message_bytes)

    async def close(self) -> None:
        """Ends running generations too."""
        await self._relay.close()
        await self._channel.close()

    async def info(self) -> VerifierInfo:
        """Ask who the verifier is. Raises VerifierAway, or Incompatible for another version of the contract."""
        call = self._stub.GetVerifierInfo(verifier_pb2.GetVerifierInfoRequest(), timeout=_ANSWER_SECONDS)
        try:
            response = await call
            self._relay.sent_bytes = limit_of(await call.trailing_metadata(), self._max_message_bytes)
        except grpc.aio.AioRpcError as error:
            raise _away(failed(error, self.peer)) from None
        try:
            info = verifier_info_from_proto(response)
        except Exception as error:  # by another version, or broken
            raise Incompatible(f"{self.peer} says of itself what this gateway cannot read: {error}") from error
        if info.protocol_version != PROTOCOL_VERSION:
            raise Incompatible(
                f"{self.peer} speaks version {info.protocol_version} of the contract; this gateway {PROTOCOL_VERSION}"
            )
        return info

    async def num_sequences(self) -> int:
        """Sequences that run or wait there, whoever asked for them."""
        try:
            load = await self._stub.GetLoad(verifier_pb2.GetLoadRequest(), timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise failed(error, self.peer) from None
        return int(load.num_running + load.num_waiting)

    async def watch(self) -> AsyncGenerator[bool]:
        """Whether it serves: now, and at every change, for as long as the connection stands."""
        call = self._health.Watch(health_pb2.HealthCheckRequest())
        try:
            async for response in call:
                yield response.status == health_pb2.HealthCheckResponse.SERVING
        except grpc.aio.AioRpcError as error:
            raise failed(error, self.peer) from None
        finally:
            call.cancel()

    def generate(
        self, request: GenerationRequest, timeout_seconds: float, *, is_alone: bool = False
    ) -> AsyncGenerator[list[GenerationEvent]]:
        """Events of one generation; see `Relay.generate`."""
        return self._relay.generate(request, timeout_seconds, is_alone=is_alone)

    def stop(self, request_id: str) -> None:
        """End a generation early: its last event comes at once. Harmless when it has ended already."""
        self._relay.stop(request_id)

    def abandon(self, reason: SaguaroError) -> None:
        """End every generation there by `reason`; later ones may begin."""
        self._relay.abandon(reason)

    async def set_policy(self, policy: TrafficPolicy) -> None:
        """Put it in force there until the verifier ends. Raises VerifierAway, a second from now at the latest."""
        request = verifier_pb2.SetPolicyRequest(classes=traffic_policy_to_proto(policy))
        try:
            await self._stub.SetPolicy(request, timeout=_POLICY_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _away(failed(error, self.peer)) from None


def _away(error: SaguaroError) -> SaguaroError:
    """A short call that was not answered in time: the deadline was ours, not the client's."""
    if isinstance(error, DeadlineExceeded):
        return VerifierAway(Unavailable(str(error)), is_refusal=False)
    return error
