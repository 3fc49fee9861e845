"""How many frames of one verifier may wait for the engine: beyond that its stream is not read, and it feels that.

No frame may be dropped for a newer one: each commit has tokens that the next one builds on. The engine takes all that
wait before its next forward, so that it never works on a round that is over.
"""

from __future__ import annotations

import asyncio

from saguaro.errors import Unavailable

_MOST_FRAMES = 256
_MOST_BYTES = 32 << 20
_PATIENCE_SECONDS = 120.0


class Intake:
    """Frames, and their bytes, that were read and not yet taken. The event loop owns it, but for `taken`."""

    def __init__(
        self,
        *,
        most_frames: int = _MOST_FRAMES,
        most_bytes: int = _MOST_BYTES,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """One frame is let in whatever its size. Waits last up to `patience_seconds`."""
        self._loop = asyncio.get_running_loop()
        self._most_frames, self._most_bytes = most_frames, most_bytes
        self._patience_seconds = patience_seconds
        self._changed = asyncio.Event()
        self.num_frames = self.num_bytes = 0

    async def admit(self, num_bytes: int) -> None:
        """Wait for room for a frame of so many bytes, and take it. Raises Unavailable where none comes in time."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                while self.num_frames and not self._has_room(num_bytes):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unavailable(
                f"{self.num_frames} frames wait for the draft model, which took none for {self._patience_seconds:g} s"
            ) from None
        self.num_frames += 1
        self.num_bytes += num_bytes

    def _has_room(self, num_bytes: int) -> bool:
        return self.num_frames < self._most_frames and self.num_bytes + num_bytes <= self._most_bytes

    def taken(self, num_bytes: int) -> None:
        """The engine took a frame of so many bytes. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release, num_bytes)

    def _release(self, num_bytes: int) -> None:
        self.num_frames -= 1
        self.num_bytes -= num_bytes
        self._changed.set()
