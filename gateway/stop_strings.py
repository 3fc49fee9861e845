"""Where an answer's text comes to hold a stop string, while the text comes in pieces.

The strings are searched as if character by character: the one that is complete first ends the answer, of several that
are complete at the same character the longest, which begins first. So the end does not depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches one answer's text. What may be the beginning of a stop string is held back until it is told."""

    def __init__(self, stop: Sequence[str]) -> None:
        """`stop`: no string is empty."""
        self._stop = stop
        self._held = ""
        self.is_reached = False

    def push(self, text: str, *, may_end: bool) -> str:
        """What is safe to give out after `text` came; everything before the stop string when it is reached.

        A string whose last character is in a `text` that `may_end` denies does not count.
        """
        seen = len(self._held)
        self._held += text
        if may_end:
            ends = [(end, end - len(stop)) for stop in self._stop if (end := self._end_of(stop, seen)) is not None]
            if ends:
                self.is_reached = True
                _, start = min(ends)
                return self._give(start)
        return self._give(self._first_beginning())

    def flush(self) -> str:
        """What was held back, at an end that came without a stop string."""
        return "" if self.is_reached else self._give(len(self._held))

    def _end_of(self, stop: str, seen: int) -> int | None:
        """Where `stop` first ends behind the `seen` characters of what is held."""
        start = self._held.find(stop, max(seen - len(stop) + 1, 0))
        return None if start < 0 else start + len(stop)

    def _first_beginning(self) -> int:
        """From where on the held text could become a stop string with what follows; its length if nowhere."""
        for start in range(len(self._held)):
            rest = self._held[start:]
            if any(len(stop) > len(rest) and stop.startswith(rest) for stop in self._stop):
                return start
        return len(self._held)

    def _give(self, length: int) -> str:
        given, self._held = self._held[:length], self._held[length:]
        return given
