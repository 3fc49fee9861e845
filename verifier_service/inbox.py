"""Messages from other threads to the one that steps."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)


class Inbox:
    """Any thread puts messages in, the engine thread runs them between two steps, in order."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` tells the engine thread that there is something to do."""
        self._wake = wake
        self._messages: deque[Callable[[], None]] = deque()

    def put(self, message: Callable[[], None]) -> None:
        """Run `message` on the engine thread before the next step."""
        self._messages.append(message)
        self._wake()

    def run_all(self) -> None:
        """Run what has come. A message that fails is dropped with a traceback in the log; it is nobody else's fault."""
        while self._messages:
            message = self._messages.popleft()
            try:
                message()
            except Exception:
                log.exception("a message to the engine thread failed; it is dropped")
