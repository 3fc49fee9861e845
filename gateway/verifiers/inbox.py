"""What has come of one generation and was not read yet."""

from __future__ import annotations

import asyncio

from saguaro.errors import SaguaroError
from saguaro.types import GenerationEvent


class Inbox:
    """Never full: a generation is bounded, and its reader may be slow, which must not hold up the others."""

    def __init__(self) -> None:
        self._events: list[GenerationEvent] = []
        self._error: SaguaroError | None = None
        self._changed = asyncio.Event()

    def put(self, event: GenerationEvent) -> None:
        """The next event."""
        self._events.append(event)
        self._changed.set()

    def fail(self, error: SaguaroError) -> None:
        """Nothing comes after what is here; the first reason counts."""
        self._error = self._error or error
        self._changed.set()

    async def take(self) -> list[GenerationEvent]:
        """All that has come since the last call, one event at least. After the last, raises what ended it."""
        await self._changed.wait()
        if self._events:
            events, self._events = self._events, []
            if self._error is None:
                self._changed.clear()
            return events
        assert self._error is not None
        raise self._error
