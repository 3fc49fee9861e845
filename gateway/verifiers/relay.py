"""The gateway's end of a relay: one stream to a verifier carries all generations that it has from here.

What concerns one generation, an event that cannot be read or a command that is too large, ends that one. Where the
stream itself breaks, each goes on elsewhere, on a stream of its own: the one that broke it breaks no other again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from gateway.verifiers.inbox import Inbox
from gateway.verifiers.stream import Stream
from saguaro.errors import DeadlineExceeded, SaguaroError
from saguaro.types import GenerationEvent, GenerationFinished, GenerationRequest


class Relay:
    """Opens a stream when a generation needs one, and another after that one has ended."""

    def __init__(self, stub: Any, peer: str, *, max_message_bytes: int) -> None:
        """`max_message_bytes`: what is taken here."""
        self._stub = stub
        self._peer = peer
        self._taken_bytes = max_message_bytes
        self.sent_bytes = max_message_bytes  # the most that the verifier takes, as far as is known
        self._stream: Stream | None = None
        self._alone: set[Stream] = set()

    async def close(self) -> None:
        """End all streams and every generation on them."""
        await asyncio.gather(*(stream.close() for stream in self._streams))

    async def generate(
        self, request: GenerationRequest, timeout_seconds: float, *, is_alone: bool = False
    ) -> AsyncGenerator[list[GenerationEvent]]:
        """Events of one generation, new or resumed: those that have come since the last, up to Finished.

        Closing the iterator early aborts the generation. Raises from the error tree; DeadlineExceeded when late.
        `is_alone`: on a stream of its own.
        """
        stream, inbox = self._opened(is_alone=is_alone), Inbox()
        late = DeadlineExceeded(f"{self._peer} did not finish before the deadline")
        clock = asyncio.get_running_loop().call_later(timeout_seconds, inbox.fail, late)
        try:
            number = stream.begin(request, inbox, self.sent_bytes)
            try:
                while True:
                    events = await inbox.take()
                    yield events
                    if isinstance(events[-1], GenerationFinished):
                        return
            finally:
                stream.cancel(number)
        finally:
            clock.cancel()
            if is_alone:
                self._alone.discard(stream)
                await stream.close()

    def stop(self, request_id: str) -> None:
        """End a generation early: its last event comes at once. Harmless when it has ended already."""
        for stream in self._streams:
            stream.stop(request_id)

    def abandon(self, reason: SaguaroError) -> None:
        """End all streams: what is on them goes on elsewhere."""
        for stream in self._streams:
            stream.abandon(reason)

    @property
    def _streams(self) -> list[Stream]:
        return [*self._alone] if self._stream is None else [self._stream, *self._alone]

    def _opened(self, *, is_alone: bool) -> Stream:
        if is_alone:
            stream = Stream(self._stub, self._peer, self._taken_bytes)
            self._alone.add(stream)
            return stream
        if self._stream is None or self._stream.has_ended:
            self._stream = Stream(self._stub, self._peer, self._taken_bytes)
        return self._stream
