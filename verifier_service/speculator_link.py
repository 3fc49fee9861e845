"""The verifier's connection to its speculator: handshake, one long-lived stream, and coming back after a loss.

Runs on the event loop. The decode loop hears of it only through `on_attached`, `on_frame` and `on_detached`, and never
waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from typing import NoReturn

import grpc

from saguaro.channel import MAX_MESSAGE_BYTES, Tls, channel_options, dialled_at, open_aio_channel
from saguaro.errors import ConfigurationError, Incompatible
from saguaro.types import PROTOCOL_VERSION, AcceptanceMode, ModelIdentity, SpeculatorInfo
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.wire.speculator import speculator_info_from_proto
from saguaro.wire.status import error_of
from saguaro.wire.verifier_frames import SMALL_BYTES
from verifier_service.delay_line import DelayLine
from verifier_service.exchange import Exchange, StreamLost
from verifier_service.link_events import LinkEvents, SendFrame
from verifier_service.traffic import Traffic

__all__ = ["LinkEvents", "SendFrame", "SpeculatorLink", "differences"]

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 3.0
_MAX_BACKOFF = 16.0  # times the reconnect pause
_MOST_REASONS = 8  # that are remembered; gRPC words one outage in several ways
_TOO_LARGE = re.compile(r"SERVER: Received message larger than max \(\d+ vs\. (\d+)\)")  # gRPC's words


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
        self._exchange: Exchange | None = None
        self._was_reached = False  # the handshake was answered
        self._told: set[str] = set()  # reasons since something last came: each is logged once
        self._max_message_bytes = MAX_MESSAGE_BYTES  # that the speculator takes, as far as is known

    def reset(self) -> None:
        """Give the stream up and shake hands anew. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is going down
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        if self._exchange is not None:
            self._exchange.give_up("it is stalled: it did not answer in time")

    async def run(self) -> None:
        """Connect, serve, and connect again, until cancelled: no fault of a connection ends it.

        Connections begin at least a pause apart, jittered and longer where the peer is there but of no use. One that
        served for longer than that is followed by the next at once.
        """
        backoff = 1.0
        while True:
            began = self._loop.time()
            self._exchange, self._was_reached = None, False
            reason = await self._one_connection()
            self._events.on_detached(reason)
            heard_from = self._exchange is not None and self._exchange.heard_from
            if heard_from or len(self._told) > _MOST_REASONS:
                self._told.clear()
            if reason not in self._told:
                log.warning("going on without a speculator: %s", reason)
            self._told.add(reason)
            # Nobody at the address: it may start any moment, and asking costs nothing. A peer that is there but hangs
            # or does not fit is asked ever less often.
            backoff = min(backoff * 2, _MAX_BACKOFF) if self._was_reached and not heard_from else 1.0
            pause = self._reconnect_seconds * backoff * random.uniform(0.8, 1.2)
            if heard_from:
                pause = max(pause - (self._loop.time() - began), 0.0)
            await asyncio.sleep(pause)

    async def _one_connection(self) -> str:
        """From dialling to the loss; returns the reason of the loss, whatever it was."""
        speculator = f"the speculator at {dialled_at(self.address, self._tls)}"
        try:
            try:
                await self._connect()
            except StreamLost as lost:
                return f"{speculator} is lost: {lost}"
            except Incompatible as error:
                return f"the speculator at {self.address} does not fit: {error}"
            except ConfigurationError as error:
                return f"{speculator} cannot be dialled: {error}"
            except grpc.aio.AioRpcError as error:
                self._learn_limit(error)
                return str(error_of(error, f"{speculator} is away; it"))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return f"{speculator} is lost: its call was cancelled"  # by gRPC, not by who runs us
        except Exception as error:
            reason = f"the connection to {speculator} failed: {type(error).__name__}: {error}"
            if reason not in self._told:
                log.exception("a connection to the speculator failed in a way that is not foreseen; it is tried again")
            return reason
        finally:
            if not self._was_reached:  # who comes back may have other settings
                self._max_message_bytes = MAX_MESSAGE_BYTES

    async def _connect(self) -> NoReturn:
        """Shake hands and serve until the connection is lost, which raises."""
        # A pool of its own: gRPC would share one connection, and its backoff, among channels to one address.
        options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        async with open_aio_channel(self.address, self._tls, options) as channel:
            stub = SpeculatorServiceStub(channel)
            answer = await stub.GetSpeculatorInfo(pb.GetSpeculatorInfoRequest(), timeout=_HANDSHAKE_SECONDS)
            self._was_reached = True
            if answer is None:  # gRPC makes that of bytes that are no message
                raise Incompatible("its answer to the handshake cannot be read")
            info = speculator_info_from_proto(answer)
            found = differences(self._target, info)
            if found:
                raise Incompatible("; ".join(found))
            await self._serve(stub, info)

    async def _serve(self, stub: SpeculatorServiceStub, info: SpeculatorInfo) -> NoReturn:
        with DelayLine(self._loop, self._delay_seconds) as there, DelayLine(self._loop, self._delay_seconds) as back:
            limit = self._max_message_bytes
            exchange = Exchange(stub.Speculate(), self._events, self._traffic, there, back, max_message_bytes=limit)
            self._exchange = exchange
            log.info("speculator %s at %s attached", info.model.name, self.address)
            self._events.on_attached(exchange.send, info)
            await exchange.run()

    def _learn_limit(self, error: grpc.aio.AioRpcError) -> None:
        """A message of ours was longer than the speculator takes: the next connection leaves its sequence out."""
        refused = _TOO_LARGE.search(error.details() or "")
        if refused is not None:
            self._max_message_bytes = max(int(refused[1]), SMALL_BYTES)
