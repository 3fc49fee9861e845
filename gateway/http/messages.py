"""Messages of a chat as OpenAI's clients send them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.http.neutral import Neutral
from gateway.http.strict import FIRST_FAULT, Strict
from saguaro.answers import ChatMessage
from saguaro.errors import InvalidRequest
from saguaro.tools import ToolCall


class TextPart(Strict):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class CalledFunction(Strict):
    """Which tool was called, and with what."""

    name: str
    arguments: Annotated[
        str | dict[str, Any] | None,
        Field(description="A JSON object, as text or as it is. Text may be cut, as it is in an answer that was."),
    ] = None

    def text(self) -> str:
        """The arguments as the gateway has them; empty for none."""
        if isinstance(self.arguments, dict):
            return json.dumps(self.arguments, ensure_ascii=False)
        text = self.arguments or ""
        return "" if text.strip() in ("", "null") else text


class CallBody(Strict):
    """A call that the assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class MessageBody(Strict):
    """One message of a chat. `developer` is what OpenAI calls `system` now; templates know the old name."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | Annotated[list[TextPart], FIRST_FAULT] | None,
        Field(description="Text; parts are joined by line breaks. Only an assistant that calls tools may have none."),
    ] = None
    tool_calls: Annotated[
        Annotated[list[CallBody], FIRST_FAULT] | None, Field(description="What an assistant called.")
    ] = None
    tool_call_id: Annotated[str | None, Field(description="Which call a tool's message answers.")] = None
    name: Annotated[None, Neutral()] = None
    function_call: Annotated[None, Neutral()] = None
    refusal: Annotated[None, Neutral()] = None
    audio: Annotated[None, Neutral()] = None

    def message(self, index: int) -> ChatMessage:
        """As the gateway has it. `index`: its place among the messages, for errors."""
        calls = tuple(ToolCall(call.id, call.function.name, call.function.text()) for call in self.tool_calls or ())
        if self.content is None and not calls:
            raise InvalidRequest("messages", f"messages.{index}.content is missing")
        if self.role == "tool" and self.tool_call_id is None:
            raise InvalidRequest(
                "messages", f"messages.{index}.tool_call_id is missing; it says which call is answered"
            )
        content = self.content or ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        return ChatMessage(role, text, calls, self.tool_call_id or "")
