"""Keeps room on a gRPC port. The library caps its connections, but would then refuse whoever comes next.

gRPC tells nobody of its connections, so they are found among the process's descriptors; the doorkeeper knows which of
them have calls. One is closed by shutting its socket down: gRPC sees an end of file, and clients dial anew. Where the
system does not list descriptors (it is Linux's /proc), the cap and gRPC's own timeouts stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

from saguaro.server.connections import FD_FOLDER, Connections, Peer, num_descriptors, peer_of

_LOOK_SECONDS = 0.25
_FULL_SHARE = 0.75  # of the limit; the rest is for those that come until the next look


async def keep_room(connections: Connections, port: int) -> None:
    """Until cancelled: where connections to `port` come near to the limit, close the quietest."""
    keep = int(connections.limit * _FULL_SHARE)
    look_from = min(keep, connections.per_address)
    before = num_descriptors()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        # To count is cheap; of whom they are is asked only where it may matter.
        if len(connections) > look_from or num_descriptors() - before > look_from:
            note(connections, await asyncio.to_thread(connected, port))
            connections.shed(keep)


def note(connections: Connections, found: dict[Peer, int]) -> None:
    """Bring `connections` in step with those found: their peers, and a descriptor of each."""
    for peer in connections.peers:
        if peer not in found:
            connections.closed(peer)
    for peer, descriptor in found.items():
        connections.opened(peer, partial(_shut, descriptor, peer))


@contextlib.contextmanager
def calling(connections: Connections, context: Any) -> Iterator[None]:
    """While the connection of a call, whose gRPC context this is, is known to have one."""
    peer = peer_of_call(context.peer())
    if peer is None:
        yield
        return
    if peer not in connections:
        connections.opened(peer, _cannot_close)  # until it is found
    with connections.calling(peer):
        yield


def connected(port: int) -> dict[Peer, int]:
    """The peers of this process's connections to the port, and a descriptor of each."""
    found: dict[Peer, int] = {}
    for name in os.listdir(FD_FOLDER):
        with _looked_into(int(name)) as connection:
            peer = None if connection is None else _peer_at(connection, port)
        if peer is not None:
            found[peer] = int(name)
    return found


def peer_of_call(text: str) -> Peer | None:
    """What a call's `context.peer()` says, as in ipv4:127.0.0.1:50051 or ipv6:%5B::1%5D:50051."""
    host, _, port = text.partition(":")[2].rpartition(":")
    host = host.replace("%5B", "").replace("%5D", "").strip("[]")
    return peer_of(host, int(port)) if port.isdecimal() else None


def _cannot_close() -> None:
    pass


def _shut(descriptor: int, peer: Peer) -> None:
    with _looked_into(descriptor) as connection, contextlib.suppress(OSError):
        # The number may be another file's by now.
        if connection is not None and peer_of(*connection.getpeername()[:2]) == peer:
            connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _looked_into(descriptor: int) -> Iterator[socket.socket | None]:
    """The socket behind it, on a descriptor of our own, which nobody else can close meanwhile; None for no socket."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield None
        return
    try:
        found = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with found:
        yield found


def _peer_at(connection: socket.socket, port: int) -> Peer | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return None
    try:
        if connection.getsockname()[1] != port:
            return None
        return peer_of(*connection.getpeername()[:2])
    except OSError:  # not connected: a listener, or one that is just ending
        return None
