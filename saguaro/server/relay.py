"""The verifier's end of a relay: all generations of one caller on one stream, a message for all that came of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from saguaro.errors import InvalidRequest, Unavailable
from saguaro.server.doorkeeper import told
from saguaro.types import EventSink, GenerationEvent, GenerationFinished, GenerationRequest
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.status import packed_status
from saguaro.wire.verifier import generation_request_from_proto, resume_request_from_proto, write_event

_FULL_BYTES = 1 << 21  # half of what gRPC takes by default


@dataclass(frozen=True, slots=True)
class GenerationHandle:
    """How to end a generation before its own end; both are harmless afterwards."""

    stop: Callable[[], None]  # its last event still comes
    abort: Callable[[], None]  # nobody listens any more


# Begins a generation whose events, on the event loop, go to the sink: the last is Finished or an exception. Raises from
# the error tree where it is refused.
Begin = Callable[[GenerationRequest, EventSink], Awaitable[GenerationHandle]]


@dataclass(slots=True)
class _Running:
    """`handle` is None until it has begun."""

    beginning: asyncio.Task[None]
    handle: GenerationHandle | None = None
    is_stopped: bool = False

    def end(self) -> None:
        self.beginning.cancel()
        if self.handle is not None:
            self.handle.abort()


class Relay:
    """One stream's. What gathers while a message is on its way out goes with the next."""

    def __init__(self, begin: Begin, *, full_bytes: int = _FULL_BYTES) -> None:
        """A message is closed once its events have `full_bytes`."""
        self._begin = begin
        self._full_bytes = full_bytes
        self._running: dict[int, _Running] = {}
        self._gathered: list[pb.RelayedEvent] = []
        self._changed = asyncio.Event()
        self._closed_because = ""

    def drain(self, because: str) -> None:
        """Refuse what would begin from now on; the stream ends when what runs has ended."""
        self._closed_because = because
        self._changed.set()

    async def responses(self, commands: AsyncIterator[pb.RelayRequest]) -> AsyncGenerator[pb.RelayResponse]:
        """What happens, until the caller has closed its side, or `drain` was called, and all have ended.

        Raises InvalidRequest, which ends all of them, where the number of one that runs is given to another.
        """
        reading = asyncio.create_task(self._read(commands))
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._gathered:
                    yield self._next_message()
                if reading.done() and not reading.cancelled() and (fault := reading.exception()) is not None:
                    raise fault
                if not self._running and (self._closed_because or reading.done()):
                    return
        finally:
            reading.cancel()
            for running in self._running.values():
                running.end()
            await asyncio.gather(reading, return_exceptions=True)

    def _next_message(self) -> pb.RelayResponse:
        num_bytes, size = 0, 0
        while size < len(self._gathered) and num_bytes < self._full_bytes:
            num_bytes += self._gathered[size].ByteSize()
            size += 1
        events, self._gathered = self._gathered[:size], self._gathered[size:]
        return pb.RelayResponse(events=events)

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _read(self, commands: AsyncIterator[pb.RelayRequest]) -> None:
        try:
            async for command in commands:
                self._obey(command)
        finally:
            self._changed.set()

    def _obey(self, command: pb.RelayRequest) -> None:
        number = command.generation_id
        running = self._running.get(number)
        match command.WhichOneof("command"):
            case "generate" | "resume" if running is None:
                self._running[number] = _Running(asyncio.create_task(self._start(number, command)))
            case "generate" | "resume":
                raise InvalidRequest("generation_id", f"generation_id is {number}, the number of one that runs")
            case "stop" if running is not None:
                running.is_stopped = True
                if running.handle is not None:
                    running.handle.stop()
            case "cancel" if running is not None:
                del self._running[number]
                running.end()
                self._changed.set()

    async def _start(self, number: int, command: pb.RelayRequest) -> None:
        is_new = command.HasField("generate")
        request_id = command.generate.request_id if is_new else command.resume.generation.request_id
        try:
            if self._closed_because:
                raise Unavailable(self._closed_because)  # refused like any other
            request = (
                generation_request_from_proto(command.generate) if is_new else resume_request_from_proto(command.resume)
            )
            handle = await self._begin(request, functools.partial(self._take, number, request_id))
        except Exception as error:  # noqa: BLE001  # it belongs to the caller
            self._take(number, request_id, error)
            return
        running = self._running.get(number)
        if running is None:  # it was over at once
            handle.abort()
            return
        running.handle = handle
        if running.is_stopped:
            handle.stop()

    # --- events -------------------------------------------------------------------------------------------------------

    def _take(self, number: int, request_id: str, event: GenerationEvent | Exception) -> None:
        running = self._running.get(number)
        if running is None:
            return  # it was cancelled, and this was on its way
        relayed = pb.RelayedEvent(generation_id=number)
        if isinstance(event, Exception):
            relayed.failure = packed_status(told(event, request_id, "a generation"))
        else:
            write_event(event, relayed.event)
        self._gathered.append(relayed)
        self._changed.set()
        if isinstance(event, Exception | GenerationFinished):
            del self._running[number]
            if running.handle is not None:
                running.handle.abort()
