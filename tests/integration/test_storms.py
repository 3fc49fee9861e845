"""Many streams at once, more than fit, and clients that leave: answers or refusals for all, and all is free after.

On emulated devices, so that what is tried is the services and not the machine's arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from saguaro.cli.trio import Trio
from saguaro.client import AsyncClient
from saguaro.errors import Unavailable
from saguaro.types import TokenIds
from saguaro.v1 import speculator_pb2, verifier_pb2
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.speculating import await_speculation
from tests.integration.waiting import until

PROFILE = """
vocabulary = 600
context_limit = 4096
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 4
[draft]
base_ms = 0.5
"""
MAX_RUNNING, MAX_WAITING = 16, 48


@dataclass(frozen=True)
class Ask:
    """One of many requests, all different, whose answers do not depend on what runs beside them."""

    number: int
    max_tokens: int = 8

    async def answer(self, client: AsyncClient) -> TokenIds:
        prompt = f"cactus {self.number % 50}"
        return (await client.generate(prompt, max_tokens=self.max_tokens, seed=self.number % 50).finish()).token_ids


def emulated(folder: Path, **flags: Any) -> Trio:
    file = folder / "storm.toml"
    file.write_text(PROFILE)
    return Trio(emulate=str(file), log_folder=folder, **flags)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Few places, so that few requests are too many."""
    flags = ["--max-running", str(MAX_RUNNING), "--max-waiting", str(MAX_WAITING)]
    with emulated(tmp_path_factory.mktemp("bounded"), verifier_flags=flags) as trio:
        await_speculation(trio)
        yield trio


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """As `saguaro up` starts it."""
    with emulated(tmp_path_factory.mktemp("roomy")) as trio:
        await_speculation(trio)
        yield trio


def megabytes(trio: Trio, role: str) -> float:
    """Resident memory of a service now."""
    status = Path(f"/proc/{trio.processes[role].pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def all_is_free(trio: Trio) -> bool:
    """No sequence anywhere, and every KV block of both models free."""
    with grpc.insecure_channel(trio.verifier_address) as channel:
        load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=5)
    with grpc.insecure_channel(trio.speculator_address) as channel:
        info = SpeculatorServiceStub(channel).GetSpeculatorInfo(speculator_pb2.GetSpeculatorInfoRequest(), timeout=5)
    verifier_is_free = load.num_running == load.num_waiting == 0 and load.free_kv_blocks == load.num_kv_blocks
    return verifier_is_free and info.num_sequences == 0 and info.free_kv_blocks == info.num_kv_blocks


async def undisturbed(trio: Trio, asks: list[Ask]) -> dict[Ask, TokenIds]:
    async with AsyncClient(trio.gateway_address) as client:
        return {ask: await ask.answer(client) for ask in asks}


def wave(trio: Trio, size: int, expected: dict[Ask, TokenIds]) -> float:
    """So many streams at once, each finished and as expected; the seconds it took."""
    asks = [list(expected)[number % len(expected)] for number in range(size)]

    async def scenario() -> list[TokenIds]:
        async with AsyncClient(trio.gateway_address) as client:
            return await asyncio.gather(*(ask.answer(client) for ask in asks))

    started = time.monotonic()
    answers = asyncio.run(scenario())
    assert answers == [expected[ask] for ask in asks]
    return time.monotonic() - started


def test_streams_that_fit_into_the_queue_all_finish(bounded: Trio) -> None:
    expected = asyncio.run(undisturbed(bounded, [Ask(number) for number in range(6)]))
    wave(bounded, MAX_WAITING, expected)
    until(lambda: all_is_free(bounded))


@pytest.mark.slow
def test_five_hundred_streams_finish_in_bounded_memory(roomy: Trio) -> None:
    expected = asyncio.run(undisturbed(roomy, [Ask(number) for number in range(50)]))
    idle = {role: megabytes(roomy, role) for role in ("gateway", "verifier")}
    seconds, after = [], []
    for _ in range(4):
        seconds.append(wave(roomy, 500, expected))
        after.append({role: megabytes(roomy, role) for role in idle})
        until(lambda: all_is_free(roomy))
    print("seconds a wave", seconds, "MB idle", idle, "after each wave", after)
    for role in idle:
        assert after[0][role] - idle[role] < 100  # 500 streams at once
        assert after[-1][role] - after[0][role] < 10  # and no more for the next 1500


@pytest.mark.parametrize("size", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_what_does_not_fit_is_refused_at_once_and_the_rest_is_served(bounded: Trio, size: int) -> None:
    asks = [Ask(number, max_tokens=100) for number in range(size)]
    expected = asyncio.run(undisturbed(bounded, asks[:3]))
    refusals: list[tuple[float, Unavailable]] = []

    async def ask_or_be_refused(ask: Ask, client: AsyncClient) -> TokenIds | None:
        started = time.monotonic()
        try:
            return await ask.answer(client)
        except Unavailable as error:
            refusals.append((time.monotonic() - started, error))
            return None

    async def scenario() -> list[TokenIds | None]:
        async with AsyncClient(bounded.gateway_address) as client, httpx2.AsyncClient(timeout=60) as http:
            storm = asyncio.gather(*(ask_or_be_refused(ask, client) for ask in asks))
            while not refusals:  # noqa: ASYNC110  # nobody would set an event
                await asyncio.sleep(0.005)
            response = await http.post(f"{bounded.http_url}/completions", json={"prompt": "x", "max_tokens": 1})
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert "wait already" in response.json()["error"]["message"]
            return await storm

    answers = asyncio.run(scenario())
    served = [answer for answer in answers if answer is not None]
    slowest = max(seconds for seconds, _ in refusals)
    print(f"{len(served)} served, {len(refusals)} refused, the slowest after {slowest:.2f} s")
    assert len(served) >= MAX_WAITING
    assert len(served) + len(refusals) == size
    assert slowest < 3
    for _, refusal in refusals:
        assert f"requests wait already; the limit is {MAX_WAITING}" in str(refusal)
        assert refusal.retry_after_seconds > 0
    for ask, tokens in expected.items():
        assert answers[ask.number] in (None, tokens)
    until(lambda: all_is_free(bounded))


async def leave_grpc(ask: Ask, client: AsyncClient, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, Unavailable):
        async with asyncio.timeout(seconds), client.generate(f"leaving {ask.number}", max_tokens=400) as stream:
            async for _ in stream:
                pass


async def leave_http(ask: Ask, http: httpx2.AsyncClient, seconds: float) -> None:
    body = {"prompt": f"leaving {ask.number}", "max_tokens": 400, "stream": ask.number % 4 == 1}
    with contextlib.suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(seconds), http.stream("POST", "/completions", json=body) as response:
            async for _ in response.aiter_bytes():
                pass


@pytest.mark.parametrize("size", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_after_clients_that_leave_at_random_moments_all_is_free_and_bystanders_have_noticed_nothing(
    bounded: Trio, size: int
) -> None:
    chance = random.Random(size)
    bystanders = [Ask(number, max_tokens=120) for number in range(4)]
    expected = asyncio.run(undisturbed(bounded, bystanders))

    async def scenario() -> list[TokenIds]:
        limits = httpx2.Limits(max_connections=None)
        async with (
            AsyncClient(bounded.gateway_address) as client,
            httpx2.AsyncClient(base_url=bounded.http_url, timeout=60, limits=limits) as http,
        ):
            staying = asyncio.gather(*(ask.answer(client) for ask in bystanders))
            leaving = []
            for number in range(size):
                ask, seconds = Ask(number), chance.uniform(0, 0.8)
                leaving.append(leave_http(ask, http, seconds) if number % 2 else leave_grpc(ask, client, seconds))
            await asyncio.gather(*leaving)
            return await staying

    assert asyncio.run(scenario()) == [expected[ask] for ask in bystanders]
    until(lambda: all_is_free(bounded), seconds=10)
