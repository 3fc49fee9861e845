"""Checks of a chat's tools and calls that every service applies alike; part of `saguaro.validation`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from saguaro.answers import ChatMessage
from saguaro.errors import InvalidRequest
from saguaro.tools import Tool, ToolUse

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOLS, _MESSAGES = "chat.tools", "chat.messages"


def validate_messages(messages: Sequence[ChatMessage]) -> None:
    """Raise InvalidRequest for calls that no template could show, and for answers to calls that were not made."""
    called: set[str] = set()
    for index, message in enumerate(messages):
        _validate_message(f"messages.{index}", message, called)
        called |= {call.id for call in message.tool_calls}


def validate_tool_use(use: ToolUse) -> None:
    """Raise InvalidRequest for tools that no template could show, and for one to call that is not among them."""
    if not 1 <= len(use.tools) <= MAX_TOOLS:
        raise InvalidRequest(_TOOLS, f"{len(use.tools)} tools are given; there may be from 1 to {MAX_TOOLS}")
    names = [tool.name for tool in use.tools]
    for tool in use.tools:
        _validate_tool(tool)
        if names.count(tool.name) > 1:
            raise InvalidRequest(_TOOLS, f'two tools are called "{tool.name}"; each needs a name of its own')
    if use.only and use.only not in names:
        raise InvalidRequest(
            "chat.tool_choice", f'tool_choice is "{use.only}"; the tools that are given are {", ".join(names)}'
        )


def _validate_tool(tool: Tool) -> None:
    if not _NAME.fullmatch(tool.name):
        raise InvalidRequest(
            _TOOLS, f'a tool is called "{tool.name[:80]}"; names are 1 to 64 letters, digits, underscores and hyphens'
        )
    if tool.parameters:
        schema = _parsed(tool.parameters)
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            raise InvalidRequest(
                _TOOLS,
                f'the parameters of tool "{tool.name}" are not the JSON schema of an object: {{"type": "object"}}',
            )


def _validate_message(place: str, message: ChatMessage, called: set[str]) -> None:
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(_MESSAGES, f'{place} has tool_calls, but its role is "{message.role}", not "assistant"')
    for call in message.tool_calls:
        if not _is_object_perhaps_cut(call.arguments or "{}"):
            raise InvalidRequest(
                _MESSAGES, f'{place}: the arguments of the call of "{call.name[:80]}" are not a JSON object as text'
            )
    if message.role == "tool" and message.tool_call_id not in called:
        raise InvalidRequest(
            _MESSAGES, f'{place} answers the call "{message.tool_call_id[:80]}", which no earlier message made'
        )


def _is_object_perhaps_cut(text: str) -> bool:
    """Clients send a message back as it came, and an answer that max_tokens cut ends in the midst of arguments."""
    return text.lstrip().startswith("{")


def _parsed(text: str) -> Any:
    """None, which is neither kind of object, for what is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
