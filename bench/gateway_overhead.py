"""What the gateway costs: time to the first token and delay a commit beside calling the verifier, tokens a core relays.

`python -m bench.gateway_overhead`. A real gateway process stands before `paced_verifier`; direct calls and calls
through the gateway take turns, so that a drifting machine hurts both alike. Prints JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.paced_verifier import PACE_UNIT_US
from bench.provenance import provenance
from saguaro.channel import channel_options
from saguaro.cli.health import is_serving
from saguaro.emulation.tokenizer import tokenizer_folder
from saguaro.v1 import common_pb2, gateway_pb2, gateway_pb2_grpc, verifier_pb2, verifier_pb2_grpc

VOCABULARY = 20_000
PROMPT_TOKENS = 200
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """Streams at once, each of `runs` runs of `length` tokens, one every `interval_us`."""

    streams: int
    interval_us: int
    length: int
    runs: int


@dataclass(frozen=True, slots=True)
class Heard:
    """Of one stream: nanoseconds to the first tokens, and from each run's sending to its arrival."""

    first_ns: int
    delays_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class House:
    """A gateway process and the ways to it and past it."""

    gateway_pid: int
    gateway: Any
    verifier: Any

    async def through(self, load: Load) -> Heard:
        """One stream by way of the gateway."""
        request = gateway_pb2.GenerateRequest(
            tokens=gateway_pb2.TokenPrompt(token_ids=_prompt(load)),
            max_tokens=load.runs * load.length,
            include_rounds=True,
        )
        return await _hear(self.gateway.Generate(request), "delta", load.length)

    async def direct(self, load: Load) -> Heard:
        """One stream of the verifier's own."""
        request = verifier_pb2.VerifierServiceGenerateRequest(
            request_id=os.urandom(8).hex(),
            prompt_token_ids=_prompt(load),
            sampling=common_pb2.SamplingParams(seed=1),
            max_tokens=load.runs * load.length,
            include_rounds=True,
        )
        return await _hear(self.verifier.Generate(request), "run", load.length)

    def cpu_seconds(self) -> float:
        """Processor time of the gateway so far."""
        fields = Path(f"/proc/{self.gateway_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _prompt(load: Load) -> list[int]:
    return [load.interval_us // PACE_UNIT_US, load.length, *range(PROMPT_TOKENS - 2)]


async def _hear(call: AsyncIterator[Any], run_kind: str, length: int) -> Heard:
    asked_ns = time.monotonic_ns()
    arrived: list[int] = []
    rounds: list[Any] = []
    async for message in call:
        kind = message.WhichOneof("event")
        if kind == run_kind:
            # One delta holds several runs where the gateway was behind.
            num_runs = len(getattr(message, run_kind).token_ids) // length
            arrived += [time.monotonic_ns()] * num_runs
        elif kind == "finished":
            rounds = list(message.finished.speculation.rounds)
    delays = (at - item.started_ns for at, item in zip(arrived, rounds, strict=True))
    return Heard(arrived[0] - asked_ns, tuple(delays))


async def overhead(house: House, load: Load, turns: int) -> dict[str, float]:
    """Milliseconds: medians through the gateway less those of direct calls, a turn of each after the other."""
    ways: dict[str, tuple[Callable[[Load], Awaitable[Heard]], list[Heard]]] = {
        "direct": (house.direct, []),
        "gateway": (house.through, []),
    }
    for _ in range(turns):
        for call, heard in ways.values():
            heard += await asyncio.gather(*(call(load) for _ in range(load.streams)))
    figures = {}
    for way, (_, heard) in ways.items():
        figures[f"ttft_ms_{way}"] = statistics.median(item.first_ns for item in heard) / 1e6
        # The first run comes with the stream's own beginning: that is the TTFT's.
        figures[f"commit_ms_{way}"] = statistics.median(ns for item in heard for ns in item.delays_ns[1:]) / 1e6
    for what in ("ttft_ms", "commit_ms"):
        figures[f"{what}_added"] = figures[f"{what}_gateway"] - figures[f"{what}_direct"]
    return {name: round(value, 3) for name, value in figures.items()}


async def relay(house: House, load: Load) -> dict[str, float]:
    """How many tokens a second come through when so many are offered, and what a commit costs the gateway."""
    cpu, began = house.cpu_seconds(), time.monotonic()
    heard = await asyncio.gather(*(house.through(load) for _ in range(load.streams)))
    seconds, cpu = time.monotonic() - began, house.cpu_seconds() - cpu
    commits = load.streams * load.runs
    return {
        "offered_tokens_per_second": round(load.streams * load.length * 1e6 / max(load.interval_us, 1), 0),
        "tokens_per_second": round(commits * load.length / seconds, 0),
        "gateway_cpu_share": round(cpu / seconds, 3),
        "gateway_cpu_ms_per_commit": round(cpu / commits * 1e3, 3),
        "commit_ms_p50": round(statistics.median(ns for item in heard for ns in item.delays_ns) / 1e6, 3),
    }


@contextlib.contextmanager
def _processes(gateway_core: str, other_core: str) -> Iterator[tuple[str, str, int]]:
    """Addresses of gateway and verifier, and the gateway's process id."""
    gateway, verifier = _free_ports(2)
    commands = [
        [f"taskset -c {other_core}", f"-m bench.paced_verifier {verifier} {VOCABULARY}"],
        [
            f"taskset -c {gateway_core}",
            f"-m gateway --port {gateway} --http-port none --verifier 127.0.0.1:{verifier} "
            f"--tokenizer {tokenizer_folder(VOCABULARY)}",
        ],
    ]
    running = [subprocess.Popen([*pin.split(), sys.executable, *what.split()]) for pin, what in commands]
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not is_serving(f"127.0.0.1:{gateway}"):
            if time.monotonic() > deadline or any(process.poll() is not None for process in running):
                raise SystemExit("the services do not come up")
            time.sleep(0.1)
        yield f"127.0.0.1:{gateway}", f"127.0.0.1:{verifier}", running[1].pid
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [item.getsockname()[1] for item in sockets]


async def measure(gateway: str, verifier: str, pid: int, turns: int) -> dict[str, Any]:
    """All figures, against running services."""
    options = channel_options()
    async with (
        grpc.aio.insecure_channel(gateway, options=options) as to_gateway,
        grpc.aio.insecure_channel(verifier, options=options) as to_verifier,
    ):
        house = House(
            pid,
            gateway_pb2_grpc.GatewayServiceStub(to_gateway),
            verifier_pb2_grpc.VerifierServiceStub(to_verifier),
        )
        one, eight = Load(1, 15_000, 4, 40), Load(8, 15_000, 4, 40)
        await overhead(house, one, 3)  # warm
        return {
            "one_stream": await overhead(house, one, turns),
            "eight_streams": await overhead(house, eight, max(turns // 4, 1)),
            "runs_of_4": await relay(house, Load(32, 32_000, 4, 150)),
            "runs_of_1": await relay(house, Load(32, 12_000, 1, 400)),
        }


def measured(turns: int) -> dict[str, Any]:
    """All figures, with the gateway on one core and everything else on another. Pins this process there."""
    first, *others = sorted(os.sched_getaffinity(0))
    other = str(others[0] if others else first)
    with _processes(str(first), other) as (gateway, verifier, pid):
        os.sched_setaffinity(0, {int(other)})
        return asyncio.run(measure(gateway, verifier, pid, turns))


def main(turns: int = 40) -> None:
    """A document on stdout."""
    json.dump({"provenance": provenance(sys.argv), "figures": measured(turns)}, sys.stdout, indent=2)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
