"""Holds messages back for a fixed time: a longer network, for experiments."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self


class DelayLine:
    """Calls what is put in on the event loop, in order, `seconds` later; at once if that is 0. A context manager.

    On a thread of its own: the event loop's timers are a millisecond late, as much as many a network is slow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._waiting: queue.SimpleQueue[tuple[float, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="delay-line", daemon=True)

    def put(self, call: Callable[[], None]) -> None:
        """From the event loop."""
        if self._seconds:
            self._waiting.put((time.monotonic() + self._seconds, call))
        else:
            call()

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.put(None)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            due, call = item
            time.sleep(max(due - time.monotonic(), 0.0))
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process is going down
                self._loop.call_soon_threadsafe(call)
