"""The gateway's line to its verifier: who it is, and generations by token ids."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from gateway.policy_push import PolicyPush
from saguaro.channel import channel_options
from saguaro.errors import Incompatible, SaguaroError, Unavailable
from saguaro.types import PROTOCOL_VERSION, GenerationEvent, GenerationRequest, KeptPolicy, TrafficPolicy, VerifierInfo
from saguaro.v1 import verifier_pb2, verifier_pb2_grpc
from saguaro.wire.status import error_of
from saguaro.wire.verifier import event_from_proto, generation_request_to_proto, verifier_info_from_proto

logger = logging.getLogger(__name__)

_INFO_TIMEOUT_SECONDS = 5.0
_ABORT_TIMEOUT_SECONDS = 5.0
_RETRY_SECONDS = 0.2


class VerifierClient:
    """One channel to one verifier. `close` ends it and every generation on it."""

    def __init__(self, address: str, *, max_message_bytes: int, keepalive_seconds: float) -> None:
        self._peer = f"the verifier at {address}"
        options = channel_options(max_message_bytes=max_message_bytes, keepalive_seconds=keepalive_seconds)
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stub: Any = verifier_pb2_grpc.VerifierServiceStub(self._channel)
        self._info: VerifierInfo | None = None
        self._policy = PolicyPush(self._channel, self._stub, address)

    async def close(self) -> None:
        """Ends running generations too."""
        await self._policy.close()
        await self._channel.close()

    async def info(self) -> VerifierInfo:
        """The last answer known to hold; asked anew after a call has failed."""
        return self._info if self._info is not None else await self.refresh_info()

    async def refresh_info(self) -> VerifierInfo:
        """Ask who the verifier is. Raises Unavailable, or Incompatible for another version of the contract."""
        try:
            response = await self._stub.GetVerifierInfo(
                verifier_pb2.GetVerifierInfoRequest(), timeout=_INFO_TIMEOUT_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            self._info = None
            raise error_of(error, self._peer) from None
        info = verifier_info_from_proto(response)
        if info.protocol_version != PROTOCOL_VERSION:
            raise Incompatible(
                f"{self._peer} speaks version {info.protocol_version} of the contract; this gateway {PROTOCOL_VERSION}"
            )
        self._info = info
        return info

    async def wait_until_up(self, timeout_seconds: float) -> VerifierInfo:
        """Ask until the verifier answers; raises the last error after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        told = False
        while True:
            try:
                return await self.refresh_info()
            except Unavailable as error:
                if time.monotonic() >= deadline:
                    raise
                if not told:
                    logger.info("waiting for the verifier: %s", error)
                    told = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def generate(self, request: GenerationRequest, timeout_seconds: float) -> AsyncGenerator[GenerationEvent]:
        """Events of one generation; closing the iterator early aborts it at the verifier."""
        call = self._stub.Generate(
            generation_request_to_proto(request),
            timeout=timeout_seconds,
            metadata=(("x-request-id", request.request_id),),
        )
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
            await self._stub.Abort(verifier_pb2.AbortRequest(request_id=request_id), timeout=_ABORT_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from None

    async def apply(self, policy: TrafficPolicy) -> tuple[KeptPolicy, ...]:
        """Keep the verifier to the policy from now on, whenever it joins; returns within a second."""
        return (await self._policy.apply(policy),)

    @property
    def kept(self) -> tuple[KeptPolicy, ...]:
        """Whether it keeps to what was applied last."""
        return (self._policy.kept,)

    def _failed(self, error: grpc.aio.AioRpcError) -> SaguaroError:
        typed = error_of(error, self._peer)
        if isinstance(typed, Unavailable):
            # It may come back as another: other context limit, other model.
            self._info = None
        return typed
