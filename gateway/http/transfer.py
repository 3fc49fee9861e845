"""Bytes in and out: bodies with a limit, event streams, and an end of all work when the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http.errors import HttpError

Result = TypeVar("Result")

EVENT_STREAM = "text/event-stream"


class ClientGone(Exception):
    """The client has closed its connection; nobody reads an answer."""


async def read_json(request: Request, *, max_bytes: int, timeout_seconds: float) -> bytes:
    """The body. Raises HttpError where it is too large or slow, or not JSON by its own word.

    Browsers send JSON across origins only where they are allowed to, but text anywhere: so a page cannot make its
    reader's machine generate.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, f'Content-Type is "{kind}"; it must be application/json')
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise HttpError(413, f"the body has {declared} bytes; this gateway takes at most {max_bytes}")
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise HttpError(
                        413, f"the body has at least {len(body)} bytes; this gateway takes at most {max_bytes}"
                    )
    except TimeoutError:
        raise HttpError(408, f"the body was not there after {timeout_seconds:g} s") from None
    return bytes(body)


async def while_connected(receive: Receive, work: Awaitable[Result]) -> Result:
    """What `work` returns or raises. It is cancelled, and ClientGone raised, when the client goes first."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. Owns the generator of their bytes: it is closed in every case."""

    def __init__(self, events: AsyncGenerator[bytes], headers: dict[str, str]) -> None:
        ours = {"content-type": EVENT_STREAM, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers=ours | headers)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        with contextlib.suppress(ClientGone):
            await while_connected(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


# What some clients take for the end of a line beside CR and LF, other control characters that JSON may have raw, and
# halves of surrogate pairs, which have no UTF-8.
_NOT_RAW = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def encoded(document: dict[str, Any]) -> bytes:
    """JSON, on what is one line for every client."""
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return _NOT_RAW.sub(_escaped, data).encode()


def _escaped(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def sse(document: bytes, event_id: int | None = None) -> bytes:
    """One event with the encoded document as its data."""
    name = b"" if event_id is None else b"id: %d\n" % event_id
    return name + b"data: " + document + b"\n\n"
