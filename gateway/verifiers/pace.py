"""Whether a verifier goes on with what it has begun."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Of the generations that one verifier has from here and whose first tokens have come: a prompt takes its time,
    what follows does not.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_decoding = 0
        self._came_at = float("-inf")

    def came(self) -> None:
        """Something came, of any generation."""
        self._came_at = self._clock()

    def began(self) -> None:
        """The first tokens of a generation have come."""
        self._num_decoding += 1

    def ended(self) -> None:
        """A generation that `began` has ended there."""
        self._num_decoding -= 1

    @property
    def idle_seconds(self) -> float:
        """Since something came; infinite before."""
        return self._clock() - self._came_at

    @property
    def late_seconds(self) -> float:
        """The same where more was to come all the time; else 0."""
        return self.idle_seconds if self._num_decoding else 0.0
