"""A caller's tools and messages, in OpenAI's shape, as the nouns of the contract: pure, shared by both clients."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from saguaro.answers import ChatMessage
from saguaro.errors import InvalidRequest
from saguaro.tools import Tool, ToolCall, ToolUse

ToolLike = Tool | Mapping[str, Any]  # or {"type": "function", "function": {"name": ..., "parameters": ...}}
MessageLike = ChatMessage | Mapping[str, Any]  # or {"role": ..., "content": ...}


def tool_use_of(tools: Sequence[ToolLike], choice: str, parallel: bool) -> ToolUse | None:
    """`choice`: auto, none, required, or the name of the one tool to call. None where nothing may be called.

    Raises InvalidRequest for what is no tool, and for a choice among none.
    """
    if not tools and choice not in ("auto", "none"):
        raise InvalidRequest("chat.tool_choice", f'tool_choice is "{choice}", but no tools are given')
    if not tools or choice == "none":
        return None
    only = "" if choice in ("auto", "required") else choice
    return ToolUse(tuple(map(_tool, tools)), must_call=choice != "auto", only=only, single=not parallel)


def _tool(tool: ToolLike) -> Tool:
    if isinstance(tool, Tool):
        return tool
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest(
            "chat.tools", f'{tool!r} is not a tool: give {{"type": "function", "function": {{"name": ...}}}}'
        )
    _check_names(tool, ("type", "function"))
    _check_names(function, ("name", "description", "parameters", "strict"))
    if tool.get("type", "function") != "function":
        raise InvalidRequest("chat.tools", f'the type of a tool is {tool["type"]!r}; it can only be "function"')
    parameters = function.get("parameters")
    return Tool(
        function["name"],
        function.get("description") or "",
        "" if parameters is None else _text(parameters),
        bool(function.get("strict")),
    )


def _check_names(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """A misspelt key must not be an absent one."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"it can have {', '.join(known)}"
            raise InvalidRequest("chat.tools", f'a tool has the key "{name}"; {hint}')


def _text(parameters: object) -> str:
    try:
        return json.dumps(parameters, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("chat.tools", f"the parameters of a tool cannot be written as JSON: {error}") from error


def message_of(item: object) -> ChatMessage:
    """Raises InvalidRequest for what is no message."""
    if isinstance(item, ChatMessage):
        return item
    if not isinstance(item, Mapping) or "role" not in item or not ("content" in item or item.get("tool_calls")):
        raise InvalidRequest("prompt", f'{item!r} is not a message: give {{"role": ..., "content": ...}}')
    unknown = set(item) - {"role", "content", "tool_calls", "tool_call_id"}
    if unknown:
        raise InvalidRequest("prompt", f"{item!r} is not a message: it has {', '.join(sorted(unknown))}")
    calls = tuple(map(_call, item.get("tool_calls") or ()))
    return ChatMessage(item["role"], item.get("content") or "", calls, item.get("tool_call_id") or "")


def _call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    try:
        return ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
    except (KeyError, TypeError):
        raise InvalidRequest(
            "prompt", f'{call!r} is not a call: give {{"id": ..., "function": {{"name": ..., "arguments": ...}}}}'
        ) from None
