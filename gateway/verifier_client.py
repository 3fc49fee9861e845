"""The gateway's line to one verifier: who it is, whether it serves, how busy it is, and generations by token ids."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.policy_push import PolicyPush
from saguaro.channel import Tls, channel_options, dialled_at, open_aio_channel
from saguaro.errors import DeadlineExceeded, Incompatible, SaguaroError, Unavailable
from saguaro.types import PROTOCOL_VERSION, GenerationEvent, GenerationRequest, KeptPolicy, TrafficPolicy, VerifierInfo
from saguaro.v1 import verifier_pb2, verifier_pb2_grpc
from saguaro.wire.status import error_of
from saguaro.wire.verifier import (
    event_from_proto,
    generation_request_to_proto,
    resume_request_to_proto,
    verifier_info_from_proto,
)

_ANSWER_SECONDS = 5.0  # for what a verifier answers at once
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OWN_WORDS = "grpc-status-details-bin"  # where our services put theirs; gRPC itself puts nothing there


class VerifierAway(Unavailable):
    """This verifier does not begin, or go on with, what was asked of it; another one may."""

    def __init__(self, error: Unavailable, *, is_refusal: bool) -> None:
        """`is_refusal`: the verifier said so itself, so it lives; otherwise the connection is gone."""
        super().__init__(str(error), error.retry_after_seconds)
        self.is_refusal = is_refusal


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
        self._policy = PolicyPush(self._channel, self._stub, address)

    async def close(self) -> None:
        """Ends running generations too."""
        await self._policy.close()
        await self._channel.close()

    async def info(self) -> VerifierInfo:
        """Ask who the verifier is. Raises VerifierAway, or Incompatible for another version of the contract."""
        request = verifier_pb2.GetVerifierInfoRequest()
        try:
            response = await self._stub.GetVerifierInfo(request, timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _away(self._failed(error)) from None
        info = verifier_info_from_proto(response)
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
            raise self._failed(error) from None
        return int(load.num_running + load.num_waiting)

    async def watch(self) -> AsyncGenerator[bool]:
        """Whether it serves: now, and at every change, for as long as the connection stands."""
        call = self._health.Watch(health_pb2.HealthCheckRequest())
        try:
            async for response in call:
                yield response.status == health_pb2.HealthCheckResponse.SERVING
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()

    async def generate(self, request: GenerationRequest, timeout_seconds: float) -> AsyncGenerator[GenerationEvent]:
        """Events of one generation, new or resumed; closing the iterator early aborts it at the verifier."""
        metadata = (("x-request-id", request.request_id),)
        if request.resumption is None:
            call = self._stub.Generate(generation_request_to_proto(request), timeout=timeout_seconds, metadata=metadata)
        else:
            resume = resume_request_to_proto(request, request.resumption)
            call = self._stub.Resume(resume, timeout=timeout_seconds, metadata=metadata)
        try:
            async for message in call:
                event = event_from_proto(message)
                if event is not None:
                    yield event
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None
        finally:
            with contextlib.suppress(Exception):
                call.cancel()

    async def abort(self, request_id: str) -> None:
        """End a generation at the verifier: its last event comes at once. Harmless when it has ended already."""
        try:
            await self._stub.Abort(verifier_pb2.AbortRequest(request_id=request_id), timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _away(self._failed(error)) from None

    async def apply(self, policy: TrafficPolicy) -> tuple[KeptPolicy, ...]:
        """Keep the verifier to the policy from now on, whenever it joins; returns within a second."""
        return (await self._policy.apply(policy),)

    @property
    def kept(self) -> tuple[KeptPolicy, ...]:
        """Whether it keeps to what was applied last."""
        return (self._policy.kept,)

    def _failed(self, error: grpc.aio.AioRpcError) -> SaguaroError:
        typed = error_of(error, self.peer)
        if not isinstance(typed, Unavailable) or error.code() not in _AWAY:
            return typed
        return VerifierAway(typed, is_refusal=any(key == _OWN_WORDS for key, _ in error.trailing_metadata() or ()))


def _away(error: SaguaroError) -> SaguaroError:
    """A short call that was not answered in time: the deadline was ours, not the client's."""
    if isinstance(error, DeadlineExceeded):
        return VerifierAway(Unavailable(str(error)), is_refusal=False)
    return error
