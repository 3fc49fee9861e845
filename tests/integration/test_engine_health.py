"""A verifier's process whose device stalls, or that is stopped and continued as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.v1 import verifier_pb2, verifier_pb2_grpc
from tests.integration.emulated import PROFILE

DEADLINE_SECONDS = 60.0
STALL = "[faults.target]\nstall_every = 40\nstall_ms = 4000"
STATUS = health_pb2.HealthCheckResponse.ServingStatus


class Verifier:
    """The process, a channel to it, and what its health said, in order."""

    def __init__(self, process: subprocess.Popen[bytes], channel: grpc.Channel) -> None:
        self.process = process
        self.said: list[str] = []
        self._stub = verifier_pb2_grpc.VerifierServiceStub(channel)
        self._watching = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=2 * DEADLINE_SECONDS
        )
        threading.Thread(target=self._listen, daemon=True).start()
        wait_until(lambda: self.said[-1:] == ["SERVING"])

    def _listen(self) -> None:
        with contextlib.suppress(grpc.RpcError):  # the process ended, or the test
            for response in self._watching:
                self.said.append(STATUS.Name(response.status))

    def tokens(self, count: int, on_first: Callable[[], None] = lambda: None) -> list[int]:
        request = verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=range(100, 110), max_tokens=count, ignore_eos=True
        )
        found: list[int] = []
        for response in self._stub.Generate(request, timeout=DEADLINE_SECONDS):
            if not found and response.run.token_ids:
                on_first()
            found += response.run.token_ids
        return found


@contextlib.contextmanager
def verifier(folder: Path, *, faults: str = "") -> Iterator[Verifier]:
    profile = folder / "mine.toml"
    profile.write_text(PROFILE.format(faults=faults, target_ms=15.0))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--emulate", str(profile), "--port", str(port), "--speculator", "", "--stall-seconds", "1"]
    with (folder / "verifier.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "verifier_service", *flags], stdout=log, stderr=log)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Verifier(process, channel)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def test_a_stalled_device_is_not_serving_until_it_goes_on(tmp_path: Path) -> None:
    with verifier(tmp_path, faults=STALL) as stalling:
        assert len(stalling.tokens(60)) == 60
        wait_until(lambda: stalling.said[-3:] == ["SERVING", "NOT_SERVING", "SERVING"])


def test_a_process_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    with verifier(tmp_path) as stopped:
        expected = stopped.tokens(60)

        def suspend() -> None:
            os.kill(stopped.process.pid, signal.SIGSTOP)
            threading.Timer(4.0, os.kill, (stopped.process.pid, signal.SIGCONT)).start()

        assert stopped.tokens(60, on_first=suspend) == expected
        assert stopped.tokens(60) == expected
        assert set(stopped.said[stopped.said.index("SERVING") :]) == {"SERVING"}
