"""Errors in OpenAI's shape: one table from the error tree to HTTP status, and sentences for malformed bodies."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from saguaro.errors import (
    ConfigurationError,
    DeadlineExceeded,
    Incompatible,
    InvalidRequest,
    ModelNotFound,
    PermissionDenied,
    RateLimited,
    SaguaroError,
    SequenceFault,
    ServiceFault,
    SessionBusy,
    SessionNotFound,
    StreamNotFound,
    Unauthenticated,
    Unavailable,
)
from saguaro.server import RequestId

# Status, and OpenAI's `type`.
STATUS_OF: dict[type[SaguaroError], tuple[int, str]] = {
    InvalidRequest: (400, "invalid_request_error"),
    ModelNotFound: (404, "invalid_request_error"),
    SessionNotFound: (404, "invalid_request_error"),
    SessionBusy: (409, "invalid_request_error"),
    StreamNotFound: (404, "invalid_request_error"),
    Unauthenticated: (401, "authentication_error"),
    PermissionDenied: (403, "permission_error"),
    RateLimited: (429, "rate_limit_error"),
    Unavailable: (503, "service_unavailable_error"),
    DeadlineExceeded: (504, "timeout_error"),
    # The client sees these as server errors.
    Incompatible: (500, "server_error"),
    SequenceFault: (500, "server_error"),
    ServiceFault: (500, "server_error"),
    ConfigurationError: (500, "server_error"),
    SaguaroError: (500, "server_error"),
}

# OpenAI's `param` and `code`, where the kind of error says them.
_NAMED: dict[type[SaguaroError], tuple[str | None, str]] = {
    ModelNotFound: ("model", "model_not_found"),
    SessionNotFound: ("session_id", "session_not_found"),
    SessionBusy: ("session_id", "session_busy"),
    StreamNotFound: ("request_id", "stream_not_found"),
    Unauthenticated: (None, "invalid_api_key"),
    RateLimited: (None, "rate_limit_exceeded"),
}

_SHOWN_CHARACTERS = 80
_REPR = reprlib.Repr()  # of a body's part, which may be all of it
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _SHOWN_CHARACTERS
# What pydantic puts into a path where a field may be one of several types.
_ALTERNATIVE = re.compile(r"str|list\[.*\]|function-before\[.*\]|literal\[.*\]|NamedTool")


class HttpError(Exception):
    """A request that HTTP itself refuses: too large, not JSON by its own word, no such path."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def id_headers(request_id: RequestId | None) -> dict[str, str]:
    """Of an answer: the gateway's own id, to resume with and to find in logs, and the caller's as it was given."""
    if request_id is None:
        return {}
    callers = {"x-client-request-id": request_id.callers} if request_id.callers else {}
    return {"x-request-id": request_id.own} | callers


def error_document(error: SaguaroError | HttpError, params: Mapping[str, str]) -> dict[str, Any]:
    """`params` are the gateway's names of fields to the client's: `chat.messages` is `messages` in any case."""
    param: str | None = None
    code: str | None = None
    if isinstance(error, InvalidRequest):
        name = error.field.rpartition(".")[2]
        param = params.get(name, name) or None
        code = "invalid_value"
    elif isinstance(error, tuple(_NAMED)):
        param, code = next(named for kind, named in _NAMED.items() if isinstance(error, kind))
    kind = "invalid_request_error" if isinstance(error, HttpError) else _row(error)[1]
    return {"error": {"message": str(error), "type": kind, "param": param, "code": code}}


def error_response(
    error: SaguaroError | HttpError, params: Mapping[str, str], request_id: RequestId | None
) -> JSONResponse:
    """The whole response to a request that came to nothing."""
    status = error.status if isinstance(error, HttpError) else _row(error)[0]
    headers = id_headers(request_id)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, Unavailable | RateLimited):
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    return JSONResponse(error_document(error, params), status, headers)


def malformed(error: ValidationError) -> InvalidRequest:
    """The first of a body's faults, with its path, what was given and what would work."""
    fault = error.errors(include_url=False, include_context=False)[0]
    if fault["type"] == "json_invalid":
        return InvalidRequest("", f"the body is not JSON: {fault['msg'].removeprefix('Invalid JSON: ')}")
    parts = (part[:_SHOWN_CHARACTERS] for part in map(str, fault["loc"]))
    path = ".".join(part for part in parts if not _ALTERNATIVE.fullmatch(part)) or "the body"
    field = str(fault["loc"][0]) if fault["loc"] else ""
    if fault["type"] == "missing":
        return InvalidRequest(field, f"{path} is missing")
    given = _REPR.repr(fault["input"])
    shown = given if len(given) <= _SHOWN_CHARACTERS else f"{given[:_SHOWN_CHARACTERS]}..."
    return InvalidRequest(field, f"{path} is {shown}: {fault['msg'][:1].lower()}{fault['msg'][1:]}")


def _row(error: SaguaroError) -> tuple[int, str]:
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
