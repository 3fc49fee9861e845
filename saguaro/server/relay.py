"""The verifier's end of a relay: all generations of one caller on one stream, a message for all that came of them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from saguaro.channel import MAX_MESSAGE_BYTES
from saguaro.errors import InvalidRequest, Unavailable
from saguaro.server.doorkeeper import told
from saguaro.server.relay_parts import parted
from saguaro.types import EventSink, GenerationEvent, GenerationFinished, GenerationRequest
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.status import packed_status
from saguaro.wire.verifier import generation_request_from_proto, resume_request_from_proto, write_event

logger = logging.getLogger(__name__)

_FULL_BYTES = 1 << 21  # a message that has so many goes out; more would make others wait longer
_ITEM_BYTES = 8  # a tag and a length, beside each event
_MOST_GATHERED_BYTES = 1 << 28  # for a caller that does not read
_LAST = (Exception, GenerationFinished)  # of a generation
_MOST_GENERATIONS = 1 << 14  # of one caller, those that wait included


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
    """One stream's. What gathers while a message is on its way out goes with the next.

    A generation that cannot be read, or whose events cannot be sent, ends alone.
    """

    def __init__(
        self,
        begin: Begin,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        most_gathered_bytes: int = _MOST_GATHERED_BYTES,
    ) -> None:
        """No message has more than `max_message_bytes`. A caller that lets more than `most_gathered_bytes` gather
        without reading loses all its generations.
        """
        self._begin = begin
        self._max_message_bytes = max_message_bytes
        self._most_gathered_bytes = most_gathered_bytes
        self._running: dict[int, _Running] = {}
        self._gathered: deque[tuple[int, pb.RelayedEvent]] = deque()  # with their bytes
        self._num_gathered_bytes = 0
        self._changed = asyncio.Event()
        self._closed_because = ""
        self._fault: Exception | None = None

    def drain(self, because: str) -> None:
        """Refuse what would begin from now on; the stream ends when what runs has ended."""
        self._closed_because = because
        self._changed.set()

    async def responses(self, commands: AsyncIterator[pb.RelayRequest]) -> AsyncGenerator[pb.RelayResponse]:
        """What happens, until the caller has closed its side, or `drain` was called, and all have ended.

        Raises what reading commands raises, and Unavailable where the caller does not read; all end then.
        """
        reading = asyncio.create_task(self._read(commands))
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._gathered:
                    yield self._next_message()
                if self._fault is not None:
                    raise self._fault
                if not self._running and (self._closed_because or reading.done()):
                    return
        finally:
            reading.cancel()
            self._end_all()
            await asyncio.gather(reading, return_exceptions=True)

    def _next_message(self) -> pb.RelayResponse:
        full, num_bytes = min(_FULL_BYTES, self._max_message_bytes), 0
        events: list[pb.RelayedEvent] = []
        while self._gathered and (not events or num_bytes + self._gathered[0][0] <= full):
            size, event = self._gathered.popleft()
            num_bytes += size
            events.append(event)
        self._num_gathered_bytes -= num_bytes
        return pb.RelayResponse(events=events)

    def _end_all(self) -> None:
        for running in self._running.values():
            running.end()
        self._running.clear()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _read(self, commands: AsyncIterator[pb.RelayRequest]) -> None:
        try:
            async for command in commands:
                self._obey(command)
        except Exception as error:  # noqa: BLE001  # `responses` raises it
            self._fault = self._fault or error
        finally:
            self._changed.set()

    def _obey(self, command: pb.RelayRequest) -> None:
        number, kind = command.generation_id, command.WhichOneof("command")
        running = self._running.get(number)
        if running is None:
            self._obey_new(number, command, kind)
            return
        match kind:
            case "generate" | "resume":
                # Whose events are whose can no longer be told; those of other numbers can.
                twice = InvalidRequest("generation_id", f"generation_id is {number}, the number of one that runs")
                self._take(number, "", twice)
                running.end()
            case "stop":
                running.is_stopped = True
                if running.handle is not None:
                    running.handle.stop()
            case "cancel":
                del self._running[number]
                running.end()
                self._changed.set()

    def _obey_new(self, number: int, command: pb.RelayRequest, kind: str | None) -> None:
        match kind:
            case "generate" | "resume" if len(self._running) < _MOST_GENERATIONS:
                self._running[number] = _Running(asyncio.create_task(self._start(number, command)))
            case "generate" | "resume":
                self._put_failure(number, "", Unavailable(f"{_MOST_GENERATIONS} generations are on this stream"))
            case None:
                unknown = InvalidRequest("command", "the command is none that this verifier knows")
                self._put_failure(number, "", unknown)

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
        """Never raises: whoever hands out events has those of others, too."""
        running = self._running.get(number)
        if running is None:
            return  # it was cancelled, and this was on its way
        if not isinstance(event, Exception):
            try:
                self._put_event(number, event)
            except Exception as error:  # noqa: BLE001  # of this generation alone
                event = error
        if isinstance(event, Exception):
            self._put_failure(number, request_id, event)
        if isinstance(event, _LAST):
            self._running.pop(number, None)
            if running.handle is not None:
                running.handle.abort()

    def _put_event(self, number: int, event: GenerationEvent) -> None:
        relayed = pb.RelayedEvent(generation_id=number)
        write_event(event, relayed.event)
        size = relayed.ByteSize() + _ITEM_BYTES
        if size <= self._max_message_bytes:
            self._put(size, relayed)
            return
        for part in parted(relayed, self._max_message_bytes - _ITEM_BYTES):
            self._put(part.ByteSize() + _ITEM_BYTES, part)

    def _put_failure(self, number: int, request_id: str, error: Exception) -> None:
        failure = packed_status(told(error, request_id, "a generation"))
        if len(failure) > self._max_message_bytes // 2:
            failure = packed_status(InvalidRequest("", f"the reason takes {len(failure)} bytes; no message has room"))
        relayed = pb.RelayedEvent(generation_id=number, failure=failure)
        self._put(relayed.ByteSize() + _ITEM_BYTES, relayed)

    def _put(self, size: int, relayed: pb.RelayedEvent) -> None:
        if self._fault is not None:
            return
        self._gathered.append((size, relayed))
        self._num_gathered_bytes += size
        if self._num_gathered_bytes > self._most_gathered_bytes:
            self._fault = Unavailable(f"the caller left {self._num_gathered_bytes} bytes unread, and is given up")
            logger.warning("%s; %d generations end", self._fault, len(self._running))
            self._gathered.clear()
            self._end_all()
        self._changed.set()
