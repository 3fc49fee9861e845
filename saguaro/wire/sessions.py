"""Sessions of GatewayService: proto <-> types."""

from __future__ import annotations

from collections.abc import Iterable

from saguaro.answers import ChatMessage
from saguaro.sessions import SessionInfo
from saguaro.v1 import gateway_pb2 as pb


def session_to_proto(session: SessionInfo) -> pb.Session:
    """Field by field; times become milliseconds."""
    return pb.Session(
        session_id=session.session_id,
        model=session.model,
        created_unix_ms=round(session.created_at * 1000),
        expires_unix_ms=round(session.expires_at * 1000),
        num_turns=session.num_turns,
        num_tokens=session.num_tokens,
        messages=(pb.ChatMessage(role=item.role, content=item.content) for item in session.messages),
        prefix_reused=session.prefix_reused,
        busy=session.is_busy,
    )


def session_from_proto(message: pb.Session) -> SessionInfo:
    """Field by field."""
    return SessionInfo(
        session_id=message.session_id,
        model=message.model,
        created_at=message.created_unix_ms / 1000,
        expires_at=message.expires_unix_ms / 1000,
        num_turns=message.num_turns,
        num_tokens=message.num_tokens,
        messages=messages_from_proto(message.messages),
        prefix_reused=message.prefix_reused if message.HasField("prefix_reused") else None,
        is_busy=message.busy,
    )


def messages_from_proto(messages: Iterable[pb.ChatMessage]) -> tuple[ChatMessage, ...]:
    """Oldest first."""
    return tuple(ChatMessage(item.role, item.content) for item in messages)
