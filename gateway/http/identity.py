"""Who calls over HTTP: the id of the request, the key that it comes with, and how long its call may last."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.guard import Guard
from gateway.http.errors import error_document, error_response
from gateway.http.transfer import EVENT_STREAM, encoded, sse
from saguaro.errors import SaguaroError, Unavailable
from saguaro.server import RequestId, within

# What probes and browsers ask before they have a key; everything else, whatever comes to be, is guarded.
_OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json"})


def request_id_of(request: Request) -> RequestId:
    """What the request is known by; the same for one request."""
    if not hasattr(request.state, "request_id"):
        request.state.request_id = RequestId.of(request.headers)
    known: RequestId = request.state.request_id
    return known


class Entrance:
    """ASGI middleware before all routes: no key, no entry; and nobody stays for ever, not even by reading nothing."""

    def __init__(self, app: ASGIApp, guard: Guard, *, longest_call_seconds: float) -> None:
        self._app = app
        self._guard = guard
        self._longest_call_seconds = longest_call_seconds
        self._calls: set[asyncio.Task[Any]] = set()
        self._cut_because: str | None = None

    def cut(self, because: str) -> None:
        """End running calls: those that stream with an event that says so, those that have said nothing with a 503."""
        self._cut_because = because
        for task in self._calls:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        call = _Call(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None, "uvicorn runs every call in a task of its own"
        self._calls.add(task)
        try:
            # Not request.url, which a client's Host header has a part in.
            if scope["path"] not in _OPEN_PATHS:
                self._guard.enter(call.request.headers.get("authorization"))
            async with within(self._longest_call_seconds):
                await self._app(scope, receive, call.send)
        except SaguaroError as error:
            # Once it has begun uvicorn closes the connection: a client that does not read learns nothing otherwise.
            if not call.has_begun:
                await call.fail(error)
        except asyncio.CancelledError:
            if self._cut_because is None:
                raise
            await call.fail(Unavailable(self._cut_because))
        finally:
            self._calls.discard(task)


class _Call:
    """A request, and how far its answer has come."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.request = Request(scope, receive)
        self.has_begun = False
        self._is_over = False
        self._streams_events = False
        self._scope, self._receive, self._send = scope, receive, send

    async def send(self, message: Message) -> None:
        """ASGI's."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._streams_events = (b"content-type", EVENT_STREAM.encode()) in message["headers"]
        self._is_over = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def fail(self, error: SaguaroError) -> None:
        """Tell the client, in the way that is still open."""
        if not self.has_begun:
            await error_response(error, {}, request_id_of(self.request))(self._scope, self._receive, self._send)
        elif self._streams_events and not self._is_over:
            event = sse(encoded(error_document(error, {})))
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
