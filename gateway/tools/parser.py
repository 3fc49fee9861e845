"""Tells calls from text while an answer comes in pieces.

What comes out does not depend on how the text was cut, except that a call's arguments come in as many pieces. What only
looks like a call (no JSON, no known tool, inside of a thought) comes out as the text that it is.
"""

from __future__ import annotations

import enum
import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from gateway.tools.forms import THOUGHT, THOUGHT_END, CallForm
from gateway.tools.json_value import JsonObjectEnd, is_object
from saguaro.tools import ToolCallDelta

# Models take them for one another, whichever their template shows.
_ARGUMENTS_KEYS = ("arguments", "parameters")


class _Place(enum.Enum):
    THOUGHT = enum.auto()  # from <think> on, up to its end
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
    """Follows one answer. `tools`: the names that may be called. `thinks`: the answer begins inside of a thought."""

    def __init__(self, form: CallForm, tools: Collection[str], *, thinks: bool = False) -> None:
        self._form = form
        self._tools = tools
        self._place = _Place.THOUGHT if thinks else _Place.TEXT
        self._held = ""
        self._may_think = True  # nothing but blanks since the beginning, a thought or a call
        self._blanks = ""  # before an opening: the template's if a call follows, else text
        self._has_text = False
        self._num_calls = 0
        self._end = JsonObjectEnd()
        self._num_scanned = 0  # characters of what is held in the head
        self._is_no_call = False  # told from the whole object that is held in the head
        keys = "|".join(_ARGUMENTS_KEYS)
        self._head = re.compile(rf'\s*\{{\s*"name"\s*:\s*"(?P<name>[\w-]+)"\s*,\s*"(?:{keys})"\s*:\s*(?=\{{)', re.ASCII)

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
        while self._place is _Place.HEAD:
            if self._take_whole(self._held, parsed):
                self._held, self._place = "", _Place.TAIL
            else:
                self._give_up_call(self._length_to_closing() or len(self._held), parsed)
                while self._step(parsed):
                    pass
        if self._place is _Place.THOUGHT or (
            self._place is _Place.TEXT and not (self._num_calls and self._held.isspace())
        ):
            parsed.text += self._held
        self._held = ""
        return parsed

    def _step(self, parsed: Parsed) -> bool:
        """Takes what is held as far as one place reaches; whether there may be more to take."""
        match self._place:
            case _Place.THOUGHT:
                return self._take_thought(parsed)
            case _Place.TEXT:
                return self._take_text(parsed)
            case _Place.HEAD:
                return self._take_head(parsed)
            case _Place.ARGUMENTS:
                return self._take_arguments(parsed)
            case _Place.TAIL:
                return self._take_tail()

    def _take_thought(self, parsed: Parsed) -> bool:
        end = self._held.find(THOUGHT_END)
        length = self._first_beginning(THOUGHT_END) if end < 0 else end + len(THOUGHT_END)
        parsed.text += self._held[:length]
        self._held = self._held[length:]
        if end < 0:
            return False
        self._place, self._may_think = _Place.TEXT, True
        return True

    def _take_text(self, parsed: Parsed) -> bool:
        if self._may_think:
            begins = self._held.lstrip()
            if begins.startswith(THOUGHT):
                self._place = _Place.THOUGHT
                return True
            if THOUGHT.startswith(begins):
                return False
            self._may_think = False
        start = self._opening_in_held()
        if start is not None:
            before = self._held[:start]
            self._give_text(before.rstrip(), parsed)
            self._blanks = before[len(before.rstrip()) :]
            self._held = self._held[start + len(self._form.opening) :]
            self._place, self._end, self._num_scanned, self._is_no_call = _Place.HEAD, JsonObjectEnd(), 0, False
            return True
        certain = self._held[: self._first_beginning(self._form.opening)].rstrip()
        self._give_text(certain, parsed)
        self._held = self._held[len(certain) :]
        return False

    def _opening_in_held(self) -> int | None:
        if self._form.opening:
            start = self._held.find(self._form.opening)
            return None if start < 0 else start
        rest = self._held.lstrip()
        return len(self._held) - len(rest) if rest.startswith("{") and not self._has_text else None

    def _first_beginning(self, marker: str) -> int:
        """From where on the held text could become `marker` with what follows; its length if nowhere."""
        for length in range(min(len(marker) - 1, len(self._held)), 0, -1):
            if self._held.endswith(marker[:length]):
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
        # Another order of keys, or no call at all: told when its object is whole.
        if not self._is_no_call and self._held.lstrip().startswith("{"):
            end = self._end.find(self._held[self._num_scanned :])
            before, self._num_scanned = self._num_scanned, len(self._held)
            if end is None:
                return False
            whole = self._held[: before + end]
            if self._take_whole(whole, parsed):
                self._held = self._held[len(whole) :]
                self._place = _Place.TAIL if self._form.closing else _Place.TEXT
                return True
            self._is_no_call = True
            if not self._form.closing:
                self._give_up_call(len(whole), parsed)
                return True
        length = self._length_to_closing()
        if length is None:
            return False
        self._give_up_call(length, parsed)
        return True

    def _length_to_closing(self) -> int | None:
        """Of what is held, up to and including the first closing; None where there is none."""
        start = self._held.find(self._form.closing) if self._form.closing else -1
        return None if start < 0 else start + len(self._form.closing)

    def _give_up_call(self, length: int, parsed: Parsed) -> None:
        """That many held characters, and the opening before them, are text."""
        self._give_text(self._blanks + self._form.opening + self._held[:length], parsed)
        self._held = self._held[length:]
        self._place = _Place.TEXT

    def _take_whole(self, text: str, parsed: Parsed) -> bool:
        """Whether `text` is a call; it is taken then."""
        try:
            call = json.loads(text)
        except (ValueError, RecursionError):
            return False
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str) or name not in self._tools:
            return False
        arguments: Any = next((call[key] for key in _ARGUMENTS_KEYS if call.get(key) is not None), {})
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        if not is_object(written):
            return False
        parsed.calls.append(self._new_call(name, written))
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
        self._place, self._may_think = _Place.TEXT, True
        return True
