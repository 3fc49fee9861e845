"""Tools and messages as chat templates read them."""

from __future__ import annotations

import json
from typing import Any

from gateway.tools.json_value import as_far_as_written, is_object
from saguaro.answers import ChatMessage
from saguaro.tools import Tool


class CutArguments(dict[str, Any]):
    """Arguments of a call that was cut: as far as they can be read, and `text`, which is printed as JSON."""

    def __init__(self, text: str) -> None:
        super().__init__(as_far_as_written(text))
        self.text = text


def tool_document(tool: Tool) -> dict[str, Any]:
    """OpenAI's shape, with its order of keys: templates print it as it is."""
    parameters = json.loads(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name} | described | {"parameters": parameters}}


def message_document(message: ChatMessage) -> dict[str, Any]:
    """Calls have their arguments as objects, not as text; what a message has not, templates must not find."""
    document: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        document["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments or "{}")},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        document["tool_call_id"] = message.tool_call_id
    return document


def _arguments(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if is_object(text) else CutArguments(text)
