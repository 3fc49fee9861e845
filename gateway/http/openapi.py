"""/openapi.json: the bodies' schemas, from the models that check them."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import saguaro
from gateway.http.bodies import ChatBody, CompletionBody
from gateway.http.sessions import SessionBody

_POSTS: dict[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatBody, "Go on from a chat."),
    "/v1/completions": (CompletionBody, "Go on from a text."),
    "/v1/sessions": (SessionBody, "Begin a conversation that the gateway keeps."),
}
_GETS = {
    "/v1/models": "What can be asked for.",
    "/v1/models/{name}": "One of them.",
    "/v1/sessions/{session_id}": "What is kept of a conversation.",
    "/v1/streams/{request_id}": "The rest of a resumable answer, after the event that Last-Event-ID names.",
    "/livez": "200 while the process lives.",
    "/readyz": "200 while requests are taken.",
    "/metrics": "For Prometheus; on the admin port where there is one.",
}
_DELETES = {
    "/v1/sessions/{session_id}": "Forget a conversation.",
    "/v1/streams/{request_id}": "End a resumable answer.",
}


def openapi_document() -> dict[str, Any]:
    """Version 3.1, whose schemas are JSON Schema 2020-12."""
    _, schemas = models_json_schema(
        [(body, "validation") for body, _ in _POSTS.values()], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Any] = {path: {"get": _operation(summary)} for path, summary in _GETS.items()}
    for path, (body, summary) in _POSTS.items():
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        paths[path] = {"post": _operation(summary) | {"requestBody": {"required": True, "content": content}}}
    for path, summary in _DELETES.items():
        paths[path]["delete"] = _operation(summary)
    for path, operations in paths.items():
        if named := re.findall(r"{(\w+)}", path):
            operations["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
            ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Saguaro", "version": saguaro.__version__},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],  # where the gateway has a keys file
    }


def _operation(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK"}, "4XX": {"description": "OpenAI's error"}}}
