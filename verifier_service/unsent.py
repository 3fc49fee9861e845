"""Messages for the speculator that its stream has not taken yet."""

from __future__ import annotations

import asyncio

from saguaro.v1 import speculator_pb2 as pb

_MOST_FRAMES = 256
_MOST_BYTES = 64 << 20


class Unsent:
    """A queue of frames, each a message or several, bounded in number and bytes. The event loop owns it.

    No frame may be dropped for a newer one: each commit has tokens that the next one builds on. A speculator that lets
    so many pile up is not reading; the link gives it up.
    """

    def __init__(self, *, most_frames: int = _MOST_FRAMES, most_bytes: int = _MOST_BYTES) -> None:
        self._most_frames, self._most_bytes = most_frames, most_bytes
        self._messages: asyncio.Queue[tuple[pb.SpeculateRequest, int, bool]] = asyncio.Queue()
        self.num_frames = self.num_bytes = 0

    def put(self, messages: tuple[pb.SpeculateRequest, ...]) -> bool:
        """Queue one frame's messages, at least one. False, and nothing is queued, where too much waits before them."""
        if self.num_frames >= self._most_frames or self.num_bytes > self._most_bytes:
            return False
        self.num_frames += 1
        for index, message in enumerate(messages, start=1):
            num_bytes = message.ByteSize()
            self.num_bytes += num_bytes
            self._messages.put_nowait((message, num_bytes, index == len(messages)))
        return True

    async def get(self) -> pb.SpeculateRequest:
        """The next message, once there is one."""
        message, num_bytes, is_last = await self._messages.get()
        self.num_bytes -= num_bytes
        self.num_frames -= is_last
        return message
