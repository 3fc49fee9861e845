"""Sessions over HTTP: the body that begins one, and the document of one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from gateway.http.messages import MessageBody
from gateway.http.strict import FIRST_FAULT, Strict
from saguaro.sessions import SessionInfo


class SessionBody(Strict):
    """POST /v1/sessions."""

    params: ClassVar[dict[str, str]] = {}

    model: Annotated[str | None, Field(description="Default: the model that is served.")] = None
    messages: Annotated[
        Annotated[list[MessageBody], FIRST_FAULT] | None, Field(description="What stands before the first turn.")
    ] = None


def session_document(session: SessionInfo) -> dict[str, Any]:
    """Times are whole seconds since 1970, as OpenAI's are."""
    return {
        "id": session.session_id,
        "object": "session",
        "model": session.model,
        "created": int(session.created_at),
        "expires_at": int(session.expires_at),
        "num_turns": session.num_turns,
        "num_tokens": session.num_tokens,
        "prefix_reused": session.prefix_reused,
        "busy": session.is_busy,
        "messages": [{"role": message.role, "content": message.content} for message in session.messages],
    }


def deletion(kind: str, name: str) -> dict[str, Any]:
    """As OpenAI says that something is gone."""
    return {"id": name, "object": kind, "deleted": True}
