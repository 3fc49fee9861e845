"""Where a JSON object ends, in text that comes in pieces."""

from __future__ import annotations


class JsonObjectEnd:
    """Counts brackets outside of strings. Give it the text from the object's "{" on, or blanks before it."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def find(self, text: str) -> int | None:
        """Length of `text` up to and including the end; None while it is still to come."""
        for index, character in enumerate(text):
            if self._in_string:
                self._read_in_string(character)
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return index + 1
        return None

    def _read_in_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
