"""Tools that a model may call, and its calls: the nouns of function calling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments, as text; "" takes none.

    `strict`: the arguments of every call match the schema. Those of a call that is demanded do in any case.
    """

    name: str
    description: str = ""
    parameters: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a chat and whether they must be used.

    `must_call`: the answer is nothing but calls. `only`: it is one call of this tool. `single`: at most one call.
    """

    tools: tuple[Tool, ...]
    must_call: bool = False
    only: str = ""
    single: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call by the model. `arguments` is JSON text; it is the beginning of some where the answer was cut."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the call number `index` of a choice: the first one has `id` and `name`, all have more of `arguments`."""

    index: int
    id: str
    name: str
    arguments: str


def joined_calls(deltas: tuple[ToolCallDelta, ...]) -> tuple[ToolCall, ...]:
    """The calls that the deltas of one choice, in order, make up."""
    calls: dict[int, ToolCall] = {}
    for delta in deltas:
        call = calls.get(delta.index, ToolCall(delta.id, delta.name, ""))
        calls[delta.index] = ToolCall(call.id, call.name, call.arguments + delta.arguments)
    return tuple(calls[index] for index in sorted(calls))
