"""What the gateway does in the background goes on, whatever is raised there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from saguaro.config import GatewaySettings
from saguaro.server import serve
from saguaro.types import TrafficPolicy
from tests.unit.gateway.several_verifiers import ANSWER, request, running_verifiers
from tests.unit.gateway.test_faulty_verifiers import until


class Oops(Exception):
    """Nobody expects it."""


def test_watching_asking_and_looking_up_survive_what_nobody_expects(
    text_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.verifiers.pool._LOOKUP_SECONDS", 0.05)
    monkeypatch.setattr("gateway.verifiers.member._LOAD_SECONDS", 0.05)
    monkeypatch.setattr("gateway.verifiers.pool.are_fixed", lambda parts: False)

    async def scenario() -> None:
        async with running_verifiers(text_folder, {}) as verifiers:
            pool, (member,) = verifiers.pool, verifiers.pool.members
            client = member.client
            num_sequences, watch, look_up = client.num_sequences, client.watch, pool._look_up
            raised: list[str] = []

            def once(name: str, real: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
                async def wrapped() -> object:
                    if name not in raised:
                        raised.append(name)
                        raise Oops(name)
                    return await real()

                return wrapped

            async def spoiled_watch() -> AsyncGenerator[bool]:
                if "watch" not in raised:
                    raised.append("watch")
                    raise Oops("watch")
                async for is_serving in watch():
                    yield is_serving

            monkeypatch.setattr(client, "num_sequences", once("load", num_sequences))
            monkeypatch.setattr(client, "watch", spoiled_watch)
            monkeypatch.setattr(pool, "_look_up", once("names", look_up))
            monkeypatch.setattr(client, "set_policy", once_with("policy", client.set_policy, raised))
            await pool.apply(TrafficPolicy())  # returns, and the policy comes later
            member.eject("the line broke")
            await until(lambda: set(raised) == {"watch", "load", "names", "policy"})
            await until(lambda: member.is_usable and member.kept.in_force)
            verifiers.fakes[0].num_running = 7
            await until(lambda: member.load == (False, 7))
            (answer,) = await verifiers.answer(request())
            assert answer.text == ANSWER

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records]
    for what in ("watching the verifier at", "how busy it is", "looking up the verifiers' names"):
        assert any(what in line and line.endswith("failed; it is begun anew") for line in said)


def once_with(
    name: str, real: Callable[[TrafficPolicy], Awaitable[None]], raised: list[str]
) -> Callable[[TrafficPolicy], Awaitable[None]]:
    async def wrapped(policy: TrafficPolicy) -> None:
        if name not in raised:
            raised.append(name)
            raise Oops(name)
        await real(policy)

    return wrapped


def test_a_service_that_can_no_longer_say_whether_it_is_ready_ends() -> None:
    async def keep_ready(say_ready: Callable[[bool], Awaitable[None]]) -> None:
        await say_ready(True)
        raise Oops("readiness")

    stopped: list[bool] = []

    async def on_stop() -> None:
        stopped.append(True)

    async def scenario() -> None:
        settings = GatewaySettings(port=0)
        served = serve(settings, lambda server: [], role="gateway", keep_ready=keep_ready, on_stop=on_stop)
        with pytest.raises(Oops, match="readiness"):
            await asyncio.wait_for(served, 10)

    asyncio.run(scenario())
    assert stopped == [True]
