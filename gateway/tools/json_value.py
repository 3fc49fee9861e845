"""JSON objects that are not whole: where one ends in text that comes in pieces, and what one says that was cut."""

from __future__ import annotations

import json
from typing import Any


def is_object(text: str) -> bool:
    """Whether `text` is one JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def as_far_as_written(text: str) -> dict[str, Any]:
    """What a JSON object says whose text was cut somewhere, up to its last whole value; empty for any other text."""
    closing, last_whole = _closing(text)
    for attempt in (text + closing, text[:last_whole] + _closing(text[:last_whole])[0]):
        if is_object(attempt):
            return dict(json.loads(attempt))
    return {}


def _closing(text: str) -> tuple[str, int]:
    """What closes all that is open at the end of `text`; and how much of it ends with a whole value or an opening."""
    open_brackets, in_string, is_escaped, last_whole = list[str](), False, False, 0
    for index, character in enumerate(text):
        if in_string:
            in_string, is_escaped = is_escaped or character != '"', character == "\\" and not is_escaped
        elif character == '"':
            in_string = True
        elif character in "{[":
            open_brackets.append("}" if character == "{" else "]")
            last_whole = index + 1
        elif character in "}]" and open_brackets:
            open_brackets.pop()
        elif character == ",":
            last_whole = index
    return '"' * in_string + "".join(reversed(open_brackets)), last_whole


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
