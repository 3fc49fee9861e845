"""Tells calls from text while an answer comes in pieces.

What comes out does not depend on how the text was cut, except that a call's arguments come in as many pieces. What only
looks like a call (no JSON, no known tool) comes out as the text that it is.
"""

from __future__ import annotations

import enum
import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.tools.forms import CallForm
from gateway.tools.json_value import JsonObjectEnd
from saguaro.tools import ToolCallDelta


class _Place(enum.Enum):
    TEXT = enum.auto()  # outside of calls
    HEAD = enum.auto()  # after an opening, up to the arguments
    ARGUMENTS = enum.auto()
    TAIL = enum.auto()  # after the arguments, up to the closing


@dataclass(slots=True)
class Parsed:
    """What a piece of the answer turned out to be."""

    text: str = ""
    calls: list[ToolCallDelta] = field(default_factory=list)


class CallParser:
    """Follows one answer. `tools`: the names that may be called."""

    def __init__(self, form: CallForm, tools: Collection[str]) -> None:
        self._form = form
        self._tools = tools
        self._place = _Place.TEXT
        self._held = ""
        self._blanks = ""  # before an opening: the template's if a call follows, else text
        self._has_text = False
        self._num_calls = 0
        self._end = JsonObjectEnd()
        self._num_scanned = 0  # characters of what is held in the head
        self._head = re.compile(
            rf'\s*\{{\s*"name"\s*:\s*"(?P<name>[\w-]+)"\s*,\s*"{form.arguments_key}"\s*:\s*(?=\{{)', re.ASCII
        )

    def push(self, text: str) -> Parsed:
        """What is certain now."""
        parsed = Parsed()
        self._held += text
        while self._step(parsed):
            pass
        return parsed

    def finish(self, text: str) -> Parsed:
        """The last piece and what was held back until now."""
        parsed = self.push(text)
        if self._place is _Place.HEAD and not self._take_whole(self._held, parsed):
            parsed.text += self._blanks + self._form.opening + self._held
        elif self._place is _Place.TEXT and not (self._num_calls and self._held.isspace()):
            parsed.text += self._held
        self._held = ""
        return parsed

    def _step(self, parsed: Parsed) -> bool:
        """Takes what is held as far as one place reaches; whether there may be more to take."""
        match self._place:
            case _Place.TEXT:
                return self._take_text(parsed)
            case _Place.HEAD:
                return self._take_head(parsed)
            case _Place.ARGUMENTS:
                return self._take_arguments(parsed)
            case _Place.TAIL:
                return self._take_tail()

    def _take_text(self, parsed: Parsed) -> bool:
        start = self._opening_in_held()
        if start is not None:
            before = self._held[:start]
            self._give_text(before.rstrip(), parsed)
            self._blanks = before[len(before.rstrip()) :]
            self._held = self._held[start + len(self._form.opening) :]
            self._place, self._end, self._num_scanned = _Place.HEAD, JsonObjectEnd(), 0
            return True
        certain = self._held[: self._first_beginning()].rstrip()
        self._give_text(certain, parsed)
        self._held = self._held[len(certain) :]
        return False

    def _opening_in_held(self) -> int | None:
        if self._form.opening:
            start = self._held.find(self._form.opening)
            return None if start < 0 else start
        rest = self._held.lstrip()
        return len(self._held) - len(rest) if rest.startswith("{") and not self._has_text else None

    def _first_beginning(self) -> int:
        """From where on the held text could become an opening with what follows; its length if nowhere."""
        opening = self._form.opening
        for length in range(min(len(opening) - 1, len(self._held)), 0, -1):
            if self._held.endswith(opening[:length]):
                return len(self._held) - length
        return len(self._held)

    def _give_text(self, text: str, parsed: Parsed) -> None:
        parsed.text += text
        self._has_text = self._has_text or bool(text)

    def _take_head(self, parsed: Parsed) -> bool:
        head = self._head.match(self._held)
        if head is not None and head["name"] in self._tools:
            parsed.calls.append(self._new_call(head["name"], ""))
            self._held = self._held[head.end() :]
            self._place, self._end = _Place.ARGUMENTS, JsonObjectEnd()
            return True
        # Another order of keys, or no call at all: told when it is whole.
        length = self._length_of_whole()
        if length is None:
            return False
        whole, self._held = self._held[:length], self._held[length:]
        self._place = _Place.TEXT
        if not self._take_whole(whole.removesuffix(self._form.closing), parsed):
            self._give_text(self._blanks + self._form.opening + whole, parsed)
        return True

    def _length_of_whole(self) -> int | None:
        if self._form.closing:
            start = self._held.find(self._form.closing)
            return None if start < 0 else start + len(self._form.closing)
        end = self._end.find(self._held[self._num_scanned :])
        before, self._num_scanned = self._num_scanned, len(self._held)
        return None if end is None else before + end

    def _take_whole(self, text: str, parsed: Parsed) -> bool:
        """Whether `text` is a call; it is taken then."""
        try:
            call = json.loads(text)
        except (ValueError, RecursionError):
            return False
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or name not in self._tools:
            return False
        arguments = call.get(self._form.arguments_key, {})
        if not isinstance(arguments, dict):
            return False
        parsed.calls.append(self._new_call(name, json.dumps(arguments, ensure_ascii=False)))
        return True

    def _new_call(self, name: str, arguments: str) -> ToolCallDelta:
        self._num_calls += 1
        return ToolCallDelta(self._num_calls - 1, f"call_{secrets.token_hex(12)}", name, arguments)

    def _take_arguments(self, parsed: Parsed) -> bool:
        end = self._end.find(self._held)
        taken = self._held if end is None else self._held[:end]
        if taken:
            parsed.calls.append(ToolCallDelta(self._num_calls - 1, "", "", taken))
        self._held = self._held[len(taken) :]
        if end is None:
            return False
        self._place = _Place.TAIL
        return True

    def _take_tail(self) -> bool:
        closing = self._form.closing or "}"
        end = self._held.find(closing)
        if end < 0:
            return False
        self._held = self._held[end + len(closing) :]
        self._place = _Place.TEXT
        return True
