"""Verifiers that fail, fast or by standing still: no request pays for it, and they get fewer; requests that fail
everywhere put nobody out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from saguaro.errors import SequenceFault, Unavailable
from saguaro.types import AcceptanceMode, GenerationStarted
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.verifier import event_to_proto, generation_request_from_proto
from tests.unit.gateway.faulty_verifier import FaultyVerifier
from tests.unit.gateway.house import FakeVerifier, running_house
from tests.unit.gateway.several_verifiers import ANSWER, Verifiers, fake_for, request, running_verifiers


def faulty(verifiers: Verifiers) -> list[FaultyVerifier]:
    return [fake for fake in verifiers.fakes if isinstance(fake, FaultyVerifier)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what it looks at is no event
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("after_runs", [0, 2])
def test_one_that_fails_at_everything_costs_no_request_and_soon_gets_none(text_folder: Path, after_runs: int) -> None:
    async def scenario() -> None:
        # The good one looks busier: the least loaded is the broken one.
        broken: dict[str, object] = {"error": SequenceFault("the forward failed"), "error_after_runs": after_runs}
        async with running_verifiers(text_folder, broken, {"num_running": 5}) as verifiers:
            pool, (bad, good) = verifiers.pool, verifiers.fakes
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            for index in range(18):
                (answer,) = await verifiers.answer(request(), f"r{index}")
                assert answer.text == ANSWER
                assert answer.num_generated_tokens == len(answer.token_ids)
            assert len(bad.requests) == 3
            assert len(good.requests) == 18
            address = verifiers.servers[0].address
            assert f"the verifier at {address} failed 3 requests in succession that others did" in pool.complaints
            assert len(pool.usable) == 2  # were the other one lost, it would be used

    asyncio.run(scenario())


def test_it_is_tried_again_by_one_request_and_used_again_when_that_goes_well(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.verifiers.conduct._FIRST_PAUSE_SECONDS", 0.2)

    async def scenario() -> None:
        broken: dict[str, object] = {"error": SequenceFault("the forward failed")}
        async with running_verifiers(text_folder, broken, {"num_running": 5}) as verifiers:
            pool, bad = verifiers.pool, verifiers.fakes[0]
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            for index in range(4):
                await verifiers.answer(request(), f"a{index}")
            assert len(bad.requests) == 3
            await until(lambda: "it is tried again now" in pool.complaints)
            await asyncio.gather(*(verifiers.answer(request(), f"b{index}") for index in range(3)))
            assert len(bad.requests) == 4  # one of them was the trial
            bad.error = None
            await until(lambda: "it is tried again now" in pool.complaints)
            await verifiers.answer(request(), "c")
            assert pool.complaints == ""

    asyncio.run(scenario())


def test_a_restart_makes_it_as_new(text_folder: Path) -> None:
    async def scenario() -> None:
        broken: dict[str, object] = {"error": SequenceFault("the forward failed")}
        async with running_verifiers(text_folder, broken, {"num_running": 5}) as verifiers:
            pool = verifiers.pool
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            for index in range(3):
                await verifiers.answer(request(), f"r{index}")
            assert pool.complaints
            await verifiers.restart(0, fake_for(verifiers.text))
            await until(lambda: len(pool.usable) == 2 and pool.complaints == "")

    asyncio.run(scenario())


def test_requests_that_fail_everywhere_are_tried_twice_and_put_nobody_out(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, *({"kind": FaultyVerifier} for _ in range(3))) as verifiers:
            for index in range(12):
                with pytest.raises(SequenceFault, match="the forward failed"):
                    await verifiers.answer(request(), f"poison{index}")
            assert sum(len(fake.requests) for fake in verifiers.fakes) == 24
            assert all(member.conduct.is_in for member in verifiers.pool.members)
            (answer,) = await verifiers.answer(request(), "good")
            assert answer.text == ANSWER

    asyncio.run(scenario())


def test_one_good_one_among_broken_ones_is_found(text_folder: Path) -> None:
    async def scenario() -> None:
        kinds: list[dict[str, object]] = [{"kind": FaultyVerifier, "is_broken": True} for _ in range(2)]
        async with running_verifiers(text_folder, *kinds, {"num_running": 5}) as verifiers:
            pool = verifiers.pool
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            outcomes: list[bool] = []
            for index in range(20):
                try:
                    await verifiers.answer(request(), f"r{index}")
                    outcomes.append(True)
                except SequenceFault:
                    outcomes.append(False)
            assert outcomes.count(False) <= 1  # the first one, which met both
            assert [member.conduct.is_in for member in pool.members].count(False) == 2

    asyncio.run(scenario())


def test_an_only_one_stays_in_use_and_readiness_tells(text_folder: Path) -> None:
    async def scenario() -> None:
        error = SequenceFault("the forward failed")
        async with running_house(text_folder, error=error) as house, httpx2.AsyncClient() as client:
            url = f"{house.http_url}/readyz"
            body = {"prompt": "a", "max_tokens": 4}
            for _ in range(3):
                answer = await client.post(f"{house.http_url}/v1/completions", json=body)
                assert answer.status_code == 500
            ready = await client.get(url)
            assert ready.status_code == 200
            assert ready.text == "ready, but 1 of 1 verifiers can be used, 1 of which failed their last requests"
            named = await client.get(f"{house.admin_url}/readyz")
            assert "failed the last 3 requests or more" in named.text
            assert house.verifier_server.address in named.text
            house.verifier.error = None
            assert (await client.post(f"{house.http_url}/v1/completions", json=body)).status_code == 200
            assert (await client.get(url)).text == "ready"

    asyncio.run(scenario())


def test_one_that_stands_still_while_others_go_on_loses_what_it_has(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.verifiers.pool._STALL_SECONDS", 1.0)

    async def scenario() -> None:
        async with running_verifiers(text_folder, {"pause_after_runs": 2}, {"num_running": 5}) as verifiers:
            pool, (still, good) = verifiers.pool, verifiers.fakes
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            stuck = asyncio.create_task(verifiers.answer(request(), "stuck"))
            await until(lambda: still.num_runs == 2)
            still.num_running = 50  # what comes now goes to the other one
            await until(lambda: any(member.load == (False, 50) for member in pool.members))
            while not stuck.done():
                await verifiers.answer(request(), "other")
            (answer,) = await asyncio.wait_for(stuck, 10)
            assert answer.text == ANSWER
            resumed = next(item for item in good.requests if item.request_id.startswith("stuck"))
            assert resumed.resumption is not None
            assert "sent nothing for" in pool.complaints

    asyncio.run(scenario())


@pytest.mark.parametrize("runs", [0, 2])
def test_what_hangs_at_one_whose_health_says_that_it_does_not_serve_goes_on_elsewhere(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    monkeypatch.setattr("gateway.verifiers.pool._HUNG_SECONDS", 0.5, raising=False)

    async def scenario() -> None:
        async with running_verifiers(text_folder, {"pause_after_runs": runs}, {"num_running": 5}) as verifiers:
            pool, hung = verifiers.pool, verifiers.fakes[0]
            await until(lambda: any(member.load == (False, 5) for member in pool.members))
            stuck = asyncio.create_task(verifiers.answer(request(), "stuck"))
            await until(lambda: len(hung.requests) == 1 and hung.num_runs == runs)
            await verifiers.servers[0].say_ready(False)
            (answer,) = await asyncio.wait_for(stuck, 10)
            assert answer.text == ANSWER
            assert [item.request_id for item in verifiers.fakes[1].requests] == ["stuck~1"]

    asyncio.run(scenario())


class Deadly(FakeVerifier):
    """Dies of every request, as far as its caller can see."""

    async def Relay(self, commands: Any, context: Any) -> AsyncIterator[Any]:
        async for command in commands:
            self.requests.append(generation_request_from_proto(command.generate))
            started = GenerationStarted(0, AcceptanceMode.COUPLED)
            event = pb.RelayedEvent(generation_id=command.generation_id, event=event_to_proto(started))
            yield pb.RelayResponse(events=[event])
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")


def test_a_request_that_verifiers_die_of_does_not_go_through_them_all(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, *({"kind": Deadly} for _ in range(5))) as verifiers:
            with pytest.raises(Unavailable, match="3 verifiers were lost before a token came"):
                await verifiers.answer(request())
            assert sum(len(fake.requests) for fake in verifiers.fakes) == 3

    asyncio.run(scenario())
