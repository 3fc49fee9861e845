"""Log lines that strangers can cause: one in a while, with how many were left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_EVERY_SECONDS = 10.0


class Sparingly(logging.Filter):
    """Lets one line pass in `every_seconds`. Call `warning`, or add it to a logger of others as a filter."""

    def __init__(self, every_seconds: float = _EVERY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_seconds = every_seconds
        self._clock = clock
        self._next_at = 0.0
        self._num_left_out = 0

    def warning(self, logger: logging.Logger, message: str) -> None:
        """Log it, unless another one was logged a short while ago."""
        if (left_out := self._passes()) is not None:
            logger.warning("%s%s", message, left_out)

    def filter(self, record: logging.LogRecord) -> bool:
        """logging's: whether this record passes. What is worse than a warning does in any case."""
        if record.levelno > logging.WARNING:
            return True
        left_out = self._passes()
        if left_out is None:
            return False
        record.msg = f"{record.msg}{left_out}"
        return True

    def _passes(self) -> str | None:
        """What to add to a line that passes; None for one that does not."""
        now = self._clock()
        if now < self._next_at:
            self._num_left_out += 1
            return None
        self._next_at, num_left_out, self._num_left_out = now + self._every_seconds, self._num_left_out, 0
        return f" ({num_left_out} such lines were left out)" if num_left_out else ""
