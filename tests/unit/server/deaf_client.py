"""An HTTP/2 client, by hand, that calls a gRPC method and gives it no window to answer in."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW_SIZE = 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _field(name: bytes, value: bytes) -> bytes:
    """HPACK: a literal that is not indexed, both parts plain."""
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


def _call(stream: int, method: bytes, message: bytes) -> bytes:
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": method,
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    block = b"".join(_field(name, value) for name, value in fields.items())
    body = b"\0" + struct.pack(">I", len(message)) + message
    return _frame(_HEADERS, _END_HEADERS, stream, block) + _frame(_DATA, _END_STREAM, stream, body)


@contextlib.contextmanager
def deaf_client(address: str, method: str, message: bytes = b"", num_calls: int = 1) -> Iterator[socket.socket]:
    """Calls `method`, and returns when the server has begun to answer: headers it may send, not a byte of a message.

    It blocks: from an event loop that serves, call it in a thread.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        no_window = struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0)
        connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, no_window) + _frame(_SETTINGS, _ACK, 0, b""))
        for index in range(num_calls):
            connection.sendall(_call(2 * index + 1, method.encode(), message))
        _await_headers(connection)
        yield connection


def _await_headers(connection: socket.socket) -> None:
    """Until some call is answered with headers: a message waits behind them."""
    while True:
        head = _exactly(connection, 9)
        _exactly(connection, int.from_bytes(head[:3], "big"))
        if head[3] == _HEADERS:
            return


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        part = connection.recv(num_bytes - len(data))
        assert part, "the server hung up"
        data += part
    return data
