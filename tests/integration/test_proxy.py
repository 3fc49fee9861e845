"""A proxy in the environment is for the way out: services and their clients on this machine never ask it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from saguaro.client import Client, Retry
from saguaro.errors import SaguaroError
from tests.integration.emulated import emulated
from tests.integration.speculating import await_speculation

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "all_proxy")


class Proxy:
    """Refuses all, and remembers the first line of what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                caller, _ = self._door.accept()
                with caller:
                    self.asked.append(caller.recv(4096).partition(b"\r\n")[0].decode())
                    caller.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """In the environment of this process and of those that it starts; no exception is made."""
    proxy = Proxy()
    for name in VARIABLES:
        monkeypatch.setenv(name, proxy.url)
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield proxy
    proxy.close()


def test_a_trio_and_its_client_work_beside_a_proxy_that_leads_nowhere(proxy: Proxy, tmp_path: Path) -> None:
    with emulated(tmp_path) as trio, Client(trio.gateway_address) as client:
        await_speculation(trio)
        answer = client.generate([65, 66, 67], max_tokens=8, ignore_eos=True).finish()
        assert len(answer.token_ids) == 8
        assert answer.speculation.speculating
    assert proxy.asked == []


@pytest.mark.parametrize("address", ["127.0.0.1:9", "localhost:9", "[::1]:9", "dns:///localhost:9", "ipv4:127.0.0.1:9"])
def test_a_client_asks_no_proxy_for_its_own_machine(proxy: Proxy, address: str) -> None:
    fails_to_ask(address)
    assert proxy.asked == []


def test_a_client_asks_the_proxy_for_others_less_what_no_proxy_names(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_to_ask("gateway.invalid:50051")
    assert "CONNECT gateway.invalid:50051 HTTP/1.1" in proxy.asked
    proxy.asked.clear()
    monkeypatch.setenv("no_proxy", "other.invalid")
    fails_to_ask("other.invalid:50051")
    assert proxy.asked == []


def fails_to_ask(address: str) -> None:
    with Client(address, retry=Retry(max_attempts=1)) as client, pytest.raises(SaguaroError):
        client.tokenize("a", timeout_seconds=1)
