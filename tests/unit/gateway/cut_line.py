"""A wire to a gateway that breaks once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_CHUNK_BYTES = 64


class CutLine:
    """Cut once, after `num_bytes` from the gateway; later connections hold. Threads and plain sockets: each is closed
    and joined by `close`, so that nothing is left to other tests.
    """

    def __init__(self, gateway: str, num_bytes: int) -> None:
        host, _, port = gateway.rpartition(":")
        self._gateway = host, int(port)
        self._left = num_bytes
        self.was_cut = False
        self._door = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._door]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    def close(self) -> None:
        for end in self._sockets:
            _hang_up(end)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for end in self._sockets:
            end.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the door was closed
            while True:
                client, _ = self._door.accept()
                gateway = socket.create_connection(self._gateway)
                self._sockets += [client, gateway]
                self._start(self._pass, client, gateway, False)
                self._start(self._pass, gateway, client, True)

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES if counts else 65536):
                if counts and not self.was_cut:
                    self._left -= len(data)
                    if self._left < 0:
                        self.was_cut = True
                        break
                sink.sendall(data)
        _hang_up(source)
        _hang_up(sink)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cut_line(gateway: str, num_bytes: int) -> Iterator[CutLine]:
    line = CutLine(gateway, num_bytes)
    try:
        yield line
    finally:
        line.close()
