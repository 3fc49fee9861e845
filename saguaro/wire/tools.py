"""Chats and what is called in them: proto <-> types."""

from __future__ import annotations

from collections.abc import Iterable

from saguaro.answers import ChatMessage, ChatPrompt
from saguaro.tools import Tool, ToolCall, ToolCallDelta, ToolUse
from saguaro.v1 import gateway_pb2 as pb


def chat_to_proto(chat: ChatPrompt, use: ToolUse | None) -> pb.ChatPrompt:
    """Messages and tools."""
    messages = [_message_to_proto(message) for message in chat.messages]
    return pb.ChatPrompt(messages=messages, tool_use=None if use is None else _use_to_proto(use))


def chat_from_proto(message: pb.ChatPrompt) -> ChatPrompt:
    """Messages, not validated."""
    return ChatPrompt(tuple(_message_from_proto(item) for item in message.messages))


def tool_use_from_proto(message: pb.ChatPrompt) -> ToolUse | None:
    """Tools, not validated."""
    return _use_from_proto(message.tool_use) if message.HasField("tool_use") else None


def call_deltas_to_proto(deltas: Iterable[ToolCallDelta]) -> list[pb.ToolCallDelta]:
    """Field by field."""
    return [
        pb.ToolCallDelta(index=delta.index, id=delta.id, name=delta.name, arguments=delta.arguments) for delta in deltas
    ]


def call_deltas_from_proto(messages: Iterable[pb.ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Field by field."""
    return tuple(ToolCallDelta(item.index, item.id, item.name, item.arguments) for item in messages)


def _message_to_proto(message: ChatMessage) -> pb.ChatMessage:
    calls = [pb.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in message.tool_calls]
    return pb.ChatMessage(
        role=message.role, content=message.content, tool_calls=calls, tool_call_id=message.tool_call_id
    )


def _message_from_proto(message: pb.ChatMessage) -> ChatMessage:
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls)
    return ChatMessage(message.role, message.content, calls, message.tool_call_id)


def _use_to_proto(use: ToolUse) -> pb.ToolUse:
    tools = [
        pb.Tool(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
        for tool in use.tools
    ]
    return pb.ToolUse(tools=tools, must_call=use.must_call, only=use.only, single=use.single)


def _use_from_proto(message: pb.ToolUse) -> ToolUse:
    tools = tuple(Tool(item.name, item.description, item.parameters, item.strict) for item in message.tools)
    return ToolUse(tools, message.must_call, message.only, message.single)
