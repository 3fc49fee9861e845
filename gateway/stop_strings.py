"""Where an answer's text comes to hold a stop string, while the text comes in pieces.

The strings are searched as if character by character: the one that is complete first ends the answer, of several that
are complete at the same character the longest, which begins first. So the end does not depend on how the text was cut.
A string may name special tokens, which print nothing: it matches these tokens, and their text where other tokens spell
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# A special token stands in the text, while it is watched, as half of a surrogate pair: no text has these.
_FIRST_MARK, _MAX_MARKS = 0xD800, 2048
_MARKS = re.compile("[\ud800-\udfff]")


class StopStrings:
    """Watches one answer's text. What may be the beginning of a stop string is held back until it is told."""

    def __init__(self, stop: Sequence[str], special_tokens: Iterable[str] = ()) -> None:
        """`stop`: no string is empty. `special_tokens`: texts of tokens that print nothing."""
        # Of several that one text begins, the longest is meant.
        named = sorted({token for token in special_tokens if token and any(token in text for text in stop)}, key=len)
        self._marks = {token: chr(_FIRST_MARK + number) for number, token in enumerate(reversed(named[-_MAX_MARKS:]))}
        self._stop = tuple(dict.fromkeys((*stop, *map(self._marked, stop))))
        self._held = ""
        self.is_reached = False

    @property
    def knows_special_tokens(self) -> bool:
        """Whether a stop string names one of them, so that `push_special` must be told of each that comes."""
        return bool(self._marks)

    def push_special(self, token: str, *, may_end: bool) -> str:
        """As `push`, for a special token, which adds nothing to the text."""
        return self.push(self._marks.get(token, ""), may_end=may_end)

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

    def _marked(self, text: str) -> str:
        for token, mark in self._marks.items():
            text = text.replace(token, mark)
        return text

    def _give(self, length: int) -> str:
        given, self._held = self._held[:length], self._held[length:]
        return _MARKS.sub("", given) if self._marks else given
