"""HTTP's connections, from the listening socket on: how many, from where, and how long without a request.

Counted at the socket, since a TLS handshake that never ends is a connection too. A call begins when its request is
there as a whole; before that, and after an answer, its connection is quiet and makes room for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saguaro.server.connections import Connections, Peer, peer_of
from saguaro.server.sparingly import Sparingly

logger = logging.getLogger(__name__)

_MOST_WAITING = 2048  # connections that wait to be accepted
_SWEEP_SECONDS = 0.5
_REFUSAL_SECONDS = 2.0  # for a status to go out to one whose body is late, before its connection is closed
_UNAUTHENTICATED = 401


class BoundedListener(socket.socket):
    """A listening socket that accepts while there is room. A new connection has `receive_seconds` for its request."""

    connections: Connections
    receive_seconds: float
    _full: Sparingly

    @classmethod
    def of(cls, listening: socket.socket, connections: Connections, receive_seconds: float) -> BoundedListener:
        """Takes the socket over."""
        self = cls(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self.connections, self.receive_seconds, self._full = connections, receive_seconds, Sparingly()
        return self

    def listen(self, backlog: int = 0) -> None:
        """With a long queue, whatever `backlog`, which for asyncio is also how many one turn of its loop accepts: those
        that wait in the kernel hold no descriptor.
        """
        super().listen(_MOST_WAITING)

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket; BlockingIOError, asyncio's word for "no more for now", also for one that was refused."""
        plain, address = super().accept()
        peer = peer_of(*address[:2])
        if not self.connections.make_room(peer[0]):
            plain.close()
            self._full.warning(
                logger, f"a connection from {peer[0]} is refused: {len(self.connections)} are open, and all have calls"
            )
            raise BlockingIOError
        accepted = _Accepted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        accepted.belongs_to = (self.connections, peer)
        self.connections.opened(peer, accepted.end, self.receive_seconds)
        return accepted, address


class _Accepted(socket.socket):
    """Says when it is closed."""

    belongs_to: tuple[Connections, Peer]

    def close(self) -> None:
        """socket's."""
        connections, peer = self.belongs_to
        connections.closed(peer)
        super().close()

    def end(self) -> None:
        """Its owner in the event loop reads an end of file, and closes it."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class Connected:
    """ASGI middleware that tells `connections` of the calls. A request that has no key is no call."""

    def __init__(self, app: ASGIApp, connections: Connections, *, receive_seconds: float, idle_seconds: float) -> None:
        self._app = app
        self._connections = connections
        self._receive_seconds = receive_seconds
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's."""
        peer = peer_of(*scope["client"]) if scope["client"] else ("", 0)
        is_whole, status = False, 0

        def begin() -> None:
            nonlocal is_whole
            if not is_whole:
                is_whole = True
                self._connections.call_began(peer)

        async def receive_on() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                begin()
            return message

        async def send_on(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        if _has_body(scope):
            self._connections.extend(peer, self._receive_seconds + _REFUSAL_SECONDS)
        else:
            begin()
        try:
            await self._app(scope, receive_on, send_on)
        finally:
            if is_whole:
                # The next request, too, has its time to arrive.
                quiet_seconds = self._idle_seconds + self._receive_seconds
                self._connections.call_ended(peer, quiet_seconds, counts=status != _UNAUTHENTICATED)

    async def sweep(self) -> None:
        """Until cancelled: close connections whose time for a request is over."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._connections.close_overdue()


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
