"""Many streams at once, more than fit, and clients that leave: answers or refusals for all, and all is free after.

On emulated devices, so that what is tried is the services and not the machine's arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from saguaro.errors import Unavailable
from saguaro.types import TokenIds
from tests.integration.fortress import MAX_WAITING, Fortress, answer, bearer, running_village
from tests.integration.waiting import until


@dataclass(frozen=True)
class Ask:
    """One of many requests, all different, whose answers do not depend on what runs beside them."""

    number: int
    max_tokens: int = 8

    async def answer(self, stub: Any) -> TokenIds:
        return await answer(stub, f"cactus {self.number}", max_tokens=self.max_tokens, seed=self.number)


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    with running_village(tmp_path_factory.mktemp("village")) as running:
        yield running


def megabytes(place: Fortress, role: str) -> float:
    """Resident memory of a service now."""
    status = Path(f"/proc/{place.trio.processes[role].pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def undisturbed(place: Fortress, asks: list[Ask]) -> dict[Ask, TokenIds]:
    async def scenario() -> dict[Ask, TokenIds]:
        async with place.asking() as stub:
            return {ask: await ask.answer(stub) for ask in asks}

    return asyncio.run(scenario())


def wave(place: Fortress, size: int, expected: dict[Ask, TokenIds]) -> float:
    """So many streams at once, each finished and as expected; the seconds it took."""
    asks = [list(expected)[number % len(expected)] for number in range(size)]

    async def scenario() -> list[TokenIds]:
        async with place.asking() as stub:
            return await asyncio.gather(*(ask.answer(stub) for ask in asks))

    started = time.monotonic()
    answers = asyncio.run(scenario())
    assert answers == [expected[ask] for ask in asks]
    return time.monotonic() - started


def test_streams_that_fit_into_the_queue_all_finish(fortress: Fortress) -> None:
    wave(fortress, MAX_WAITING, undisturbed(fortress, [Ask(number) for number in range(6)]))
    until(fortress.is_free)


@pytest.mark.slow
def test_five_hundred_streams_finish_in_bounded_memory(village: Fortress) -> None:
    expected = undisturbed(village, [Ask(number) for number in range(50)])
    idle = {role: megabytes(village, role) for role in ("gateway", "verifier")}
    seconds, after = [], []
    for _ in range(4):
        seconds.append(wave(village, 500, expected))
        after.append({role: megabytes(village, role) for role in idle})
        until(village.is_free)
    print("seconds a wave", seconds, "MB idle", idle, "after each wave", after)
    for role in idle:
        assert after[0][role] - idle[role] < 100  # 500 streams at once
        assert after[-1][role] - after[0][role] < 10  # and no more for the next 1500


@pytest.mark.parametrize("size", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_what_does_not_fit_is_refused_at_once_and_the_rest_is_served(fortress: Fortress, size: int) -> None:
    asks = [Ask(number, max_tokens=100) for number in range(size)]
    expected = undisturbed(fortress, asks[:3])
    refusals: list[tuple[float, Unavailable]] = []

    async def ask_or_be_refused(ask: Ask, stub: Any) -> TokenIds | None:
        started = time.monotonic()
        try:
            return await ask.answer(stub)
        except Unavailable as error:
            refusals.append((time.monotonic() - started, error))
            return None

    async def scenario() -> list[TokenIds | None]:
        async with fortress.asking() as stub, fortress.http(httpx2.AsyncClient) as http:
            storm = asyncio.gather(*(ask_or_be_refused(ask, stub) for ask in asks))
            while not refusals:  # noqa: ASYNC110  # nobody would set an event
                await asyncio.sleep(0.005)
            response = await http.post("/completions", json={"prompt": "x", "max_tokens": 1})
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
    assert slowest < size / 50  # all come in one moment, and one core reads them; none waits for a place
    for _, refusal in refusals:
        assert f"requests wait already; the limit is {MAX_WAITING}" in str(refusal)
        assert refusal.retry_after_seconds > 0
    for ask, tokens in expected.items():
        assert answers[ask.number] in (None, tokens)
    until(fortress.is_free)


async def leave_grpc(number: int, stub: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, Unavailable):
        async with asyncio.timeout(seconds):
            await answer(stub, f"leaving {number}", max_tokens=400)


async def leave_http(number: int, place: Fortress, seconds: float) -> None:
    """By a socket of its own: clients for HTTP leak theirs where they are cancelled at some moments."""
    body = json.dumps({"prompt": f"leaving {number}", "max_tokens": 400, "stream": number % 4 == 1}).encode()
    headers = [("host", "x"), ("content-type", "application/json"), ("content-length", str(len(body))), *bearer()]
    head = "POST /v1/completions HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    reader, writer = await asyncio.open_connection("127.0.0.1", place.trio.ports.http, ssl=place.tls_context())
    writer.write(head.encode() + b"\r\n" + body)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.read(), seconds)
    writer.transport.abort()


@pytest.mark.parametrize(("name", "size"), [("fortress", 40), pytest.param("village", 300, marks=pytest.mark.slow)])
def test_after_clients_that_leave_at_random_moments_all_is_free_and_bystanders_have_noticed_nothing(
    name: str, size: int, request: pytest.FixtureRequest
) -> None:
    place: Fortress = request.getfixturevalue(name)
    chance = random.Random(size)
    bystanders = [Ask(number, max_tokens=120) for number in range(4)]
    expected = undisturbed(place, bystanders)

    async def scenario() -> list[TokenIds]:
        async with place.asking() as stub:
            staying = asyncio.gather(*(ask.answer(stub) for ask in bystanders))
            leaving = []
            for number in range(size):
                seconds = chance.uniform(0, size / 100)
                leaving.append(leave_http(number, place, seconds) if number % 2 else leave_grpc(number, stub, seconds))
            await asyncio.gather(*leaving)
            return await staying

    assert asyncio.run(scenario()) == [expected[ask] for ask in bystanders]
    until(place.is_free, seconds=10)
