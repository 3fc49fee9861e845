"""/openapi.json: the bodies' schemas, from the models that check them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import saguaro
from gateway.http.bodies import ChatBody, CompletionBody

_POSTS: dict[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatBody, "Go on from a chat."),
    "/v1/completions": (CompletionBody, "Go on from a text."),
}
_GETS = {
    "/v1/models": "What can be asked for.",
    "/v1/models/{name}": "One of them.",
    "/livez": "200 while the process lives.",
    "/readyz": "200 while requests are taken.",
    "/metrics": "For Prometheus; on the admin port where there is one.",
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
    paths["/v1/models/{name}"]["get"]["parameters"] = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Saguaro", "version": saguaro.__version__},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK"}, "4XX": {"description": "OpenAI's error"}}}
