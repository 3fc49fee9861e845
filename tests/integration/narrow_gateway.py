"""A gateway of its own process that may open few files, in front of a running trio's verifier."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2

from saguaro.cli.trio import Ports, Trio
from saguaro.emulation.profile import load_profile
from saguaro.emulation.tokenizer import tokenizer_folder
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub
from tests.integration.waiting import until

MAX_FILES = 256
BODY = {"prompt": "Hi", "max_tokens": 3}


@dataclass(frozen=True)
class NarrowGateway:
    grpc_port: int
    http_port: int
    log: Path

    def connect(self, port: int, count: int) -> list[socket.socket]:
        """As many as come through; those that are closed at once count too."""
        made = []
        for _ in range(count):
            item = socket.socket()
            item.settimeout(10)
            item.connect(("127.0.0.1", port))
            made.append(item)
        return made

    def serves_http(self, client: Any = httpx2, seconds: float = 5.0) -> bool:
        """One completion within that time, errors and all; `client` may hold a connection."""
        url = f"http://127.0.0.1:{self.http_port}/v1/completions"
        return bool(_within(seconds, lambda: client.post(url, json=BODY, timeout=seconds).status_code == 200))

    def serves_grpc(self, channel: Any = None, seconds: float = 5.0) -> bool:
        """One answer within that time; over a new connection unless a channel is given."""
        with contextlib.ExitStack() as owned:
            if channel is None:
                alone = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
                channel = owned.enter_context(grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options=alone))
            call = GatewayServiceStub(channel).Generate
            asked = pb.GenerateRequest(text="Hi", max_tokens=3)
            return bool(
                _within(
                    seconds, lambda: list(call(asked, timeout=seconds, wait_for_ready=True))[-1].HasField("finished")
                )
            )

    def lines(self, word: str) -> list[str]:
        """Those of its log that have the word."""
        return [line for line in self.log.read_text().splitlines() if word in line]


def num_closed(sockets: list[socket.socket]) -> int:
    """How many the other end has closed."""
    closed = 0
    for item in sockets:
        item.setblocking(False)
        try:
            closed += item.recv(65536, socket.MSG_PEEK) == b"" or _ends(item)
        except BlockingIOError:
            pass
        except OSError:
            closed += 1
    return closed


def _ends(item: socket.socket) -> bool:
    """Whether an end of file follows what came."""
    while True:
        try:
            if item.recv(65536) == b"":
                return True
        except BlockingIOError:
            return False


def _within(seconds: float, holds: Any) -> Any:
    started = time.monotonic()
    found = holds()
    return found and time.monotonic() - started < seconds


@contextlib.contextmanager
def running_gateway(trio: Trio, profile: Path, folder: Path, *flags: str) -> Iterator[NarrowGateway]:
    """Serving, with `ulimit -n` MAX_FILES."""
    ports = Ports.free()
    gateway = NarrowGateway(ports.gateway, ports.http, folder / "gateway.log")
    ours = ["--port", str(ports.gateway), "--http-port", str(ports.http), "--verifier", trio.verifier_address]
    ours += ["--tokenizer", str(tokenizer_folder(load_profile(str(profile)).vocabulary))]
    limited = ["bash", "-c", f'ulimit -n {MAX_FILES}; exec "$0" -m gateway "$@"', sys.executable, *ours, *flags]
    with gateway.log.open("w") as log, subprocess.Popen(limited, stdout=log, stderr=log) as process:
        try:
            until(lambda: _answers(gateway))
            yield gateway
            assert process.poll() is None
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(gateway: NarrowGateway) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{gateway.http_port}/readyz").text == "ready"
    except httpx2.TransportError:
        return False
