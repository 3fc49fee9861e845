"""The verifier's connection to its speculator: handshake, one long-lived stream, and coming back after a loss.

Runs on the event loop. The decode loop hears of it only through `on_attached`, `on_frame` and `on_detached`, and never
waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from saguaro.channel import Tls, channel_options, dialled_at, open_aio_channel
from saguaro.errors import Incompatible
from saguaro.types import (
    PROTOCOL_VERSION,
    AcceptanceMode,
    ModelIdentity,
    SpeculatorFrame,
    SpeculatorInfo,
    VerifierFrame,
)
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.wire.speculator import (
    speculator_frame_from_proto,
    speculator_info_from_proto,
    verifier_frame_to_proto,
)
from saguaro.wire.status import error_of
from verifier_service.delay_line import DelayLine
from verifier_service.traffic import Traffic

log = logging.getLogger(__name__)

SendFrame = Callable[[VerifierFrame], None]

_HANDSHAKE_SECONDS = 3.0
_MAX_BACKOFF = 16.0  # times the reconnect pause
_MAX_UNSENT_FRAMES = 256  # the stream takes frames at once; this many unsent means that nobody reads them


@dataclass(frozen=True, slots=True)
class LinkEvents:
    """Where the link reports to; called on the event loop."""

    on_attached: Callable[[SendFrame, SpeculatorInfo], None]
    on_frame: Callable[[SpeculatorFrame], None]
    on_detached: Callable[[str], None]


def differences(target: ModelIdentity, info: SpeculatorInfo) -> list[str]:
    """Field by field, why a speculator cannot serve a target; empty if it can.

    Vocabulary sizes may differ (some families pad embeddings per size), context limits too: a sequence beyond the
    draft's is decoded without it. So is one whose acceptance mode the speculator does not have.
    """
    found = []
    if info.protocol_version != PROTOCOL_VERSION:
        found.append(f"protocol version: verifier {PROTOCOL_VERSION}, speculator {info.protocol_version}")
    if info.model.tokenizer_fingerprint != target.tokenizer_fingerprint:
        found.append(
            f"tokenizer: target {target.name} has {target.tokenizer_fingerprint[:12]}, "
            f"draft {info.model.name} has {info.model.tokenizer_fingerprint[:12]}"
        )
    if not info.acceptance_modes:
        known = ", ".join(mode.name.lower() for mode in AcceptanceMode)
        found.append(f"acceptance modes: the verifier knows {known}, the speculator drafts for none of them")
    return found


class SpeculatorLink:
    """Keeps one stream to the speculator at `address`, for as long as `run` runs."""

    def __init__(
        self,
        address: str,
        target: ModelIdentity,
        events: LinkEvents,
        traffic: Traffic,
        *,
        reconnect_seconds: float,
        delay_seconds: float = 0.0,
        tls: Tls | None = None,
    ) -> None:
        """`delay_seconds` holds every frame back, each way: a longer network, for experiments."""
        self.address = address
        self._tls = tls
        self._target = target
        self._events = events
        self._traffic = traffic
        self._reconnect_seconds = reconnect_seconds
        self._delay_seconds = delay_seconds
        self._loop = asyncio.get_running_loop()
        self._reset = asyncio.Event()
        self._heard_from = False  # a frame came on this connection
        self._was_reached = False  # the handshake was answered

    def reset(self) -> None:
        """Give the stream up and shake hands anew. From any thread."""
        self._loop.call_soon_threadsafe(self._reset.set)

    async def run(self) -> None:
        """Connect, serve, and connect again with jittered backoff, until cancelled."""
        backoff = 1.0
        last_reason = ""
        while True:
            self._heard_from = self._was_reached = False
            reason = await self._one_connection()
            self._events.on_detached(reason)
            if reason != last_reason:
                log.warning("going on without a speculator: %s", reason)
                last_reason = reason
            if self._heard_from:
                last_reason = ""
            # Nobody at the address: it may start any moment, and asking costs nothing. A peer that is there but hangs
            # or does not fit is asked ever less often.
            backoff = min(backoff * 2, _MAX_BACKOFF) if self._was_reached and not self._heard_from else 1.0
            await asyncio.sleep(self._reconnect_seconds * backoff * random.uniform(0.8, 1.2))

    async def _one_connection(self) -> str:
        """From dialling to the loss; returns the reason of the loss."""
        # A pool of its own: gRPC would share one connection, and its backoff, among channels to one address.
        options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        async with open_aio_channel(self.address, self._tls, options) as channel:
            stub = SpeculatorServiceStub(channel)
            try:
                answer = await stub.GetSpeculatorInfo(pb.GetSpeculatorInfoRequest(), timeout=_HANDSHAKE_SECONDS)
                self._was_reached = True
                info = speculator_info_from_proto(answer)
                found = differences(self._target, info)
                if found:
                    raise Incompatible("; ".join(found))
                return await self._stream(stub, info)
            except Incompatible as error:
                return f"the speculator at {self.address} does not fit: {error}"
            except grpc.aio.AioRpcError as error:
                peer = f"the speculator at {dialled_at(self.address, self._tls)} is away; it"
                return str(error_of(error, peer))

    async def _stream(self, stub: SpeculatorServiceStub, info: SpeculatorInfo) -> str:
        with DelayLine(self._loop, self._delay_seconds) as there, DelayLine(self._loop, self._delay_seconds) as back:
            return await self._exchange(stub, info, there, back)

    async def _exchange(
        self, stub: SpeculatorServiceStub, info: SpeculatorInfo, there: DelayLine, back: DelayLine
    ) -> str:
        outgoing: asyncio.Queue[VerifierFrame] = asyncio.Queue()
        self._reset.clear()

        def put(frame: VerifierFrame) -> None:
            outgoing.put_nowait(frame)
            if outgoing.qsize() > _MAX_UNSENT_FRAMES:
                self._reset.set()

        def enqueue(frame: VerifierFrame) -> None:
            there.put(lambda: put(frame))

        call = stub.Speculate()
        reader = asyncio.ensure_future(self._read(call, back))
        writer = asyncio.ensure_future(self._write(call, outgoing))
        reset = asyncio.ensure_future(self._reset.wait())
        log.info("speculator %s at %s attached", info.model.name, self.address)
        self._events.on_attached(lambda frame: self._to_loop(enqueue, frame), info)
        try:
            done, _ = await asyncio.wait((reader, writer, reset), return_when=asyncio.FIRST_COMPLETED)
            if reset in done:
                return f"the speculator at {self.address} is stalled: it did not answer in time"
            for task in done:
                task.result()
            return f"the speculator at {self.address} ended the stream"
        finally:
            call.cancel()
            for task in (reader, writer, reset):
                task.cancel()
            await asyncio.gather(reader, writer, reset, return_exceptions=True)

    def _to_loop(self, enqueue: SendFrame, frame: VerifierFrame) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is going down
            self._loop.call_soon_threadsafe(enqueue, frame)

    async def _read(self, call: grpc.aio.StreamStreamCall, back: DelayLine) -> None:
        async for message in call:
            self._traffic.received(message)
            frame, malformed = speculator_frame_from_proto(message)
            if malformed:
                log.warning("%d malformed items from the speculator are dropped", malformed)
            self._heard_from = True
            back.put(functools.partial(self._events.on_frame, frame))

    async def _write(self, call: grpc.aio.StreamStreamCall, outgoing: asyncio.Queue[VerifierFrame]) -> None:
        while True:
            message = verifier_frame_to_proto(await outgoing.get())
            self._traffic.sent(message)
            await call.write(message)
