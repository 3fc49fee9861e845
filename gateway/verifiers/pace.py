"""Whether a verifier goes on with what it has begun."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Of the generations that one verifier has from here. That it took one is no progress: it says so at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_there = self._num_decoding = 0
        self._took_at = self._came_at = float("-inf")

    def took(self) -> None:
        """A generation goes there; `left` follows."""
        self._num_there += 1
        self._took_at = self._clock()

    def left(self) -> None:
        """A generation has ended there."""
        self._num_there -= 1

    def began(self) -> None:
        """The first tokens of a generation have come; `ended` follows."""
        self._num_decoding += 1

    def ended(self) -> None:
        """A generation that `began` has ended there."""
        self._num_decoding -= 1

    def came(self) -> None:
        """Some progress of any generation came."""
        self._came_at = self._clock()

    @property
    def idle_seconds(self) -> float:
        """Since something came; infinite before."""
        return self._clock() - self._came_at

    @property
    def late_seconds(self) -> float:
        """The same while a generation is in the midst of its tokens, else 0: a prompt takes its time, a step does not.

        What goes there meanwhile is no excuse.
        """
        return self.idle_seconds if self._num_decoding else 0.0

    @property
    def silent_seconds(self) -> float:
        """Since something came or went there, while any generation is there, else 0."""
        return self._clock() - max(self._came_at, self._took_at) if self._num_there else 0.0
