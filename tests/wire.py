"""A wire to a service that can be cut and held: bytes pass until somebody disturbs it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class Wire:
    """A relay on the loopback, of threads and plain sockets; `close` hangs up and joins them all."""

    def __init__(self, service: str) -> None:
        host, _, port = service.rpartition(":")
        self._service = host, int(port)
        self._passes = threading.Event()
        self._passes.set()
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    def cut(self) -> None:
        """Every connection breaks; new ones hold."""
        with self._lock:
            for end in self._ends:
                _hang_up(end)

    def hold(self) -> None:
        """Bytes stay where they are until `release`."""
        self._passes.clear()

    def release(self) -> None:
        self._passes.set()

    def close(self) -> None:
        self.release()
        _hang_up(self._door)
        with self._lock:
            self._is_closed = True
        self.cut()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._door.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads = [*(item for item in self._threads if item.is_alive()), thread]
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the door was closed
            while True:
                client, _ = self._door.accept()
                self._start(self._carry, client)

    def _carry(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._service) as service:
            ends = {client, service}
            with self._lock:
                if self._is_closed:
                    return
                self._ends |= ends
            back = threading.Thread(target=self._pass_back, args=(service, client), daemon=True)
            back.start()
            self._pass(client, service)
            back.join()
            with self._lock:
                self._ends -= ends

    def _pass_back(self, service: socket.socket, client: socket.socket) -> None:
        self._pass(service, client)

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        chunk_bytes: int = 65536,
        holds: Callable[[bytes], bool] = lambda data: True,
    ) -> None:
        """Until either end hangs up, or `holds` says of what came that the wire breaks before it."""
        with contextlib.suppress(OSError):
            while (data := source.recv(chunk_bytes)) and holds(data):
                self._passes.wait()
                sink.sendall(data)
        _hang_up(source)
        _hang_up(sink)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire_to(service: str) -> Iterator[Wire]:
    wire = Wire(service)
    try:
        yield wire
    finally:
        wire.close()
