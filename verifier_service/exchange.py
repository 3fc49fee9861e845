"""One stream to the speculator, from its first frame to its loss."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import NoReturn

import grpc

from saguaro.channel import MAX_MESSAGE_BYTES
from saguaro.types import SpeculatorFrame, VerifierFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.speculator import speculator_frame_from_proto
from saguaro.wire.verifier_frames import cut_to_protos
from verifier_service.delay_line import DelayLine
from verifier_service.link_events import LinkEvents
from verifier_service.traffic import Traffic
from verifier_service.unsent import Unsent

log = logging.getLogger(__name__)

_STATUS_SECONDS = 1.0  # for the reader to hear how a stream ended that cannot be written to


class StreamLost(Exception):
    """The stream ended; why, in words for the log and for clients."""


class Exchange:
    """Frames out, in messages that the peer takes; frames in, as far as they can be read.

    What cannot be read or written is charged to its message or sequence, and the stream goes on. Bytes that are on
    their way out are bounded: a speculator that does not read is given up.
    """

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall,
        events: LinkEvents,
        traffic: Traffic,
        there: DelayLine,
        back: DelayLine,
        *,
        max_message_bytes: int,
    ) -> None:
        """`max_message_bytes`: the longest message that the peer takes, as far as is known."""
        self._call = call
        self._there, self._back = there, back
        self._events = events
        self._traffic = traffic
        self._max_message_bytes = max_message_bytes
        self._loop = asyncio.get_running_loop()
        self._unsent = Unsent()
        self._given_up: asyncio.Future[str] = self._loop.create_future()
        self._num_unreadable = 0
        self.heard_from = False  # a frame came

    def give_up(self, reason: str) -> None:
        """End the stream. From the event loop."""
        if not self._given_up.done():
            self._given_up.set_result(reason)

    async def run(self) -> NoReturn:
        """Until the stream is lost: raises StreamLost, or the error of the call."""
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        try:
            await asyncio.wait((reader, writer, self._given_up), return_when=asyncio.FIRST_COMPLETED)
            if self._given_up.done():
                raise StreamLost(self._given_up.result())
            if not reader.done():
                await asyncio.wait((reader,), timeout=_STATUS_SECONDS)
            ended = reader if reader.done() else writer
            if not ended.cancelled():  # gRPC cancels whom it tells that the call was cancelled
                ended.result()
            raise StreamLost("it ended the stream")
        finally:
            self._call.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            if self._num_unreadable > 1:
                log.warning("%d messages of the speculator could not be read and were dropped", self._num_unreadable)

    # --- out ----------------------------------------------------------------------------------------------------------

    def send(self, frame: VerifierFrame) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is going down
            self._loop.call_soon_threadsafe(self._enqueue, frame)

    def _enqueue(self, frame: VerifierFrame) -> None:
        try:
            self._cut_and_queue(frame)
        except Exception as error:
            log.exception("a frame for the speculator cannot be sent")
            self.give_up(f"a frame for it cannot be sent: {error}")  # later ones build on what this one says

    def _cut_and_queue(self, frame: VerifierFrame) -> None:
        cut = cut_to_protos(frame, self._max_message_bytes)
        if cut.refused:
            log.warning(
                "%d sequences are not speculated: what the speculator must know of them is longer than the %d bytes "
                "that it takes, or has values that the protocol has no room for; its max_message_bytes "
                "decides, up to %d",
                len(cut.refused),
                self._max_message_bytes,
                MAX_MESSAGE_BYTES,
            )
            self._events.on_frame(SpeculatorFrame(statuses=cut.refused))
        if not cut.messages:
            return
        num_bytes = sum(message.ByteSize() for message in cut.messages) if self._there.delays else 0
        if not self._there.put(lambda: self._queue(cut.messages), num_bytes):
            self.give_up("more is under way to it than the delayed link holds")

    def _queue(self, messages: tuple[pb.SpeculateRequest, ...]) -> None:
        if not self._unsent.put(messages):
            self.give_up(
                f"it does not read: {self._unsent.num_frames} frames, {self._unsent.num_bytes} bytes, are unsent"
            )

    async def _write(self) -> None:
        while True:
            message = await self._unsent.get()
            self._traffic.sent(message)
            await self._call.write(message)

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        async for message in self._call:
            frame = self._readable(message)
            self.heard_from = True
            num_bytes = message.ByteSize() if self._back.delays and message is not None else 0
            if not self._back.put(functools.partial(self._events.on_frame, frame), num_bytes):
                raise StreamLost("more is under way from it than the delayed link holds")

    def _readable(self, message: pb.SpeculateResponse | None) -> SpeculatorFrame:
        """What of a message can be used: nothing where it is None, which gRPC makes of bytes that are no message."""
        if message is None:
            self._num_unreadable += 1
            if self._num_unreadable == 1:
                log.warning("a message of the speculator cannot be read and is dropped")
            return SpeculatorFrame()
        self._traffic.received(message)
        frame, malformed = speculator_frame_from_proto(message)
        if malformed:
            log.warning("%d malformed items from the speculator are dropped", malformed)
        return frame
