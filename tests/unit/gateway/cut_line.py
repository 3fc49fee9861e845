"""A wire to a gateway that breaks once."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from tests.wire import Wire

_CHUNK_BYTES = 64


class CutLine(Wire):
    """Cut once, after `num_bytes` from the gateway; later connections hold."""

    def __init__(self, gateway: str, num_bytes: int) -> None:
        self._left = num_bytes
        self.was_cut = False
        super().__init__(gateway)

    def _pass_back(self, service: socket.socket, client: socket.socket) -> None:
        self._pass(service, client, _CHUNK_BYTES, self._holds)

    def _holds(self, data: bytes) -> bool:
        if not self.was_cut:
            self._left -= len(data)
            self.was_cut = self._left < 0
            return not self.was_cut
        return True


@contextlib.contextmanager
def cut_line(gateway: str, num_bytes: int) -> Iterator[CutLine]:
    line = CutLine(gateway, num_bytes)
    try:
        yield line
    finally:
        line.close()
