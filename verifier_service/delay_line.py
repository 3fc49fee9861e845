"""Holds messages back for a fixed time: a longer network, for experiments."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

_MOST_BYTES = 256 << 20
_ITEM_BYTES = 1024  # what holding one costs beside its message


class DelayLine:
    """Calls what is put in on the event loop, in order, `seconds` later; at once if that is 0. A context manager.

    After its end nothing is called any more: what was under way is lost with the connection.
    On a thread of its own: the event loop's timers are a millisecond late, as much as many a network is slow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, *, most_bytes: int = _MOST_BYTES) -> None:
        self._loop = loop
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._held: deque[tuple[float, Callable[[], None], int]] = deque()
        self._held_bytes = 0
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="delay-line", daemon=True)

    @property
    def delays(self) -> bool:
        """Whether anything is held back at all."""
        return self._seconds > 0

    def put(self, call: Callable[[], None], num_bytes: int) -> bool:
        """From the event loop. False, and the call is dropped, where too many bytes are under way already."""
        if not self.delays:
            call()
            return True
        with self._changed:
            if self._held_bytes > self._most_bytes:
                return False
            self._held_bytes += num_bytes + _ITEM_BYTES
            self._held.append((time.monotonic() + self._seconds, call, num_bytes + _ITEM_BYTES))
            self._changed.notify()
        return True

    def __enter__(self) -> Self:
        if self.delays:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._held.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (call := self._next_due()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process is going down
                self._loop.call_soon_threadsafe(self._hand_on, call)

    def _next_due(self) -> Callable[[], None] | None:
        """Wait for the next call and until it is due; None at the end."""
        with self._changed:
            while not self._is_over:
                if not self._held:
                    self._changed.wait()
                elif (early := self._held[0][0] - time.monotonic()) > 0:
                    self._changed.wait(early)
                else:
                    _, call, num_bytes = self._held.popleft()
                    self._held_bytes -= num_bytes
                    return call
        return None

    def _hand_on(self, call: Callable[[], None]) -> None:
        if not self._is_over:
            call()
