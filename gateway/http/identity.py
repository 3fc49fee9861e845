"""Who calls over HTTP: the id of the request, the key that it comes with, and how long its call may last."""

from __future__ import annotations

import re
import secrets

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.guard import Guard
from gateway.http.errors import error_response
from saguaro.errors import SaguaroError
from saguaro.server import within

_REQUEST_ID = re.compile(r"[!-~]{1,128}")
# What probes and browsers ask before they have a key; everything else, whatever comes to be, is guarded.
_OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json"})


def request_id_of(request: Request) -> str:
    """The caller's, where it can travel on as it is, else a random one; the same for one request."""
    given = request.headers.get("x-request-id", "")
    if not hasattr(request.state, "request_id"):
        request.state.request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    return str(request.state.request_id)


class Entrance:
    """ASGI middleware before all routes: no key, no entry; and nobody stays for ever, not even by reading nothing."""

    def __init__(self, app: ASGIApp, guard: Guard, *, longest_call_seconds: float) -> None:
        self._app = app
        self._guard = guard
        self._longest_call_seconds = longest_call_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        request = Request(scope, receive)
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            # Not request.url, which a client's Host header has a part in.
            if scope["path"] not in _OPEN_PATHS:
                self._guard.enter(request.headers.get("authorization"))
            async with within(self._longest_call_seconds):
                await self._app(scope, receive, send_on)
        except SaguaroError as error:
            if not has_begun:
                await error_response(error, {}, request_id_of(request))(scope, receive, send)
            # Else uvicorn closes the connection: a client that does not read learns nothing in any other way.
