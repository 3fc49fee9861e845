"""A policy set at the gateway's admin port is in force in running streams within a second, and visible in metrics."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.types import RoundReport
from tests.integration.emulated import PROFILE
from tests.integration.speculating import await_speculation
from tests.integration.test_emulated import CHAT

TARGET_MS = 15.0
IN_FORCE_SECONDS = 1.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def call(port: int, path: str, body: dict[str, Any] | None = None) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        None if body is None else json.dumps(body).encode(),
        {"content-type": "application/json"},
        method="GET" if body is None else "PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {role: free_port() for role in ("gateway", "verifier", "speculator")}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[Trio]:
    folder = tmp_path_factory.mktemp("policy")
    file = folder / "mine.toml"
    file.write_text(PROFILE.format(faults="", target_ms=TARGET_MS))
    with Trio(
        emulate=str(file),
        log_folder=folder,
        gateway_flags=("--admin-port", str(ports["gateway"])),
        verifier_flags=("--metrics-port", str(ports["verifier"])),
        speculator_flags=("--metrics-port", str(ports["speculator"])),
    ) as running:
        await_speculation(running)
        yield running


class Stream(threading.Thread):
    """One answer of a class, asked for now."""

    def __init__(self, trio: Trio, traffic_class: str) -> None:
        super().__init__()
        self._trio, self._traffic_class = trio, traffic_class
        self.began = time.monotonic()
        self.answer: Answer | None = None
        self.start()

    def run(self) -> None:
        with Client(self._trio.gateway_address) as client:
            self.answer = client.generate(
                CHAT, max_tokens=700, include_rounds=True, traffic_class=self._traffic_class
            ).finish()

    def rounds(self) -> tuple[RoundReport, ...]:
        self.join()
        assert self.answer is not None
        return self.answer.speculation.rounds


def test_a_change_reaches_running_streams_of_its_class_within_a_second(trio: Trio, ports: dict[str, int]) -> None:
    streams = {name: Stream(trio, name) for name in ("latency", "throughput")}
    time.sleep(0.8)
    answer = json.loads(call(ports["gateway"], "/admin/policy", {"latency": {"max_lookahead": 1}}))
    changed = time.monotonic()
    assert answer["verifiers"] == [{"address": trio.verifier_address, "in_force": True, "reason": None}]
    for name, stream in streams.items():
        rounds = stream.rounds()
        in_force_ns = (changed - stream.began + IN_FORCE_SECONDS) * 1e9
        before = [item.num_draft_tokens for item in rounds if item.started_ns < (changed - stream.began - 0.1) * 1e9]
        after = [item.num_draft_tokens for item in rounds if item.started_ns > in_force_ns]
        assert len(after) > 10
        assert max(before) > 1
        assert (max(after) <= 1) is (name == "latency")
    scraped = call(ports["verifier"], "/metrics")
    in_force = {line.split()[0]: float(line.split()[1]) for line in scraped.splitlines() if line[0] != "#"}
    assert in_force['saguaro_lookahead_tokens{traffic_class="latency"}'] <= 1
    assert 'traffic_class="latency"' in call(ports["gateway"], "/metrics")
    busy = [line for line in call(ports["speculator"], "/metrics").splitlines() if "busy_seconds_total " in line]
    assert float(busy[-1].split()[1]) > 0


@pytest.mark.slow
def test_a_restarted_verifier_is_told_the_policy_again(trio: Trio, ports: dict[str, int]) -> None:
    call(ports["gateway"], "/admin/policy", {"throughput": {"max_lookahead": 0}})
    trio.restart("verifier")
    deadline = time.monotonic() + 20
    while not json.loads(call(ports["gateway"], "/admin/policy"))["verifiers"][0]["in_force"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with Client(trio.gateway_address) as client:
        answer = client.generate(CHAT, max_tokens=8, traffic_class="throughput").finish()
    assert answer.speculation.reason == "the policy of the request's traffic class is plain decoding"
