"""Verifiers are killed in the midst of streams: every stream ends, token for token as undisturbed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, AsyncClient
from saguaro.v1 import verifier_pb2
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.speculating import await_speculation

PROMPT = list(range(65, 91))
LONG = {"max_tokens": 200, "ignore_eos": True}
# Whatever depends on what was said before the break.
REQUESTS: list[dict[str, Any]] = [
    {**LONG},
    {**LONG, "temperature": 0.7, "seed": 5, "logprobs": True, "top_logprobs": 2},
    {**LONG, "temperature": 0.9, "seed": 6, "n": 2},
    {**LONG, "temperature": 0.8, "seed": 7, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
    {**LONG, "temperature": 1.0, "seed": 8, "top_p": 0.9, "logit_bias": {70: 2.0}, "presence_penalty": 0.5},
    {**LONG, "temperature": 1.0, "seed": 9, "top_k": 40, "include_rounds": True},
    {"max_tokens": 200, "temperature": 1.0, "seed": 10, "regex": "([a-z]+ ){30}[0-9]{50}"},
    {**LONG, "temperature": 1.0, "seed": 11, "stop": ["never to be seen here"], "min_tokens": 150},
]


class Streams:
    """Streams side by side, and how much of them has come."""

    def __init__(self, client: AsyncClient) -> None:
        self.num_tokens = 0
        self._client = client
        self._grew = asyncio.Event()

    async def run(self) -> list[tuple[Answer, ...]]:
        """One stream a request, to their ends."""
        return list(await asyncio.gather(*(self._answer(options) for options in REQUESTS)))

    async def until(self, num_tokens: int) -> None:
        """Until all streams together have so many tokens."""
        while self.num_tokens < num_tokens:
            self._grew.clear()
            await asyncio.wait_for(self._grew.wait(), 60)

    async def _answer(self, options: dict[str, Any]) -> tuple[Answer, ...]:
        stream = self._client.generate(PROMPT, **options)
        async for delta in stream:
            self.num_tokens += len(delta.token_ids)
            self._grew.set()
        return stream.results


def busiest(trio: Trio) -> str:
    """The verifier that runs most sequences, at least one: which has them is for the gateway to choose."""
    loads: dict[str, int] = {}
    for name in ("verifier", "verifier-2"):
        with grpc.insecure_channel(trio.address(name)) as channel:
            load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=10)
            loads[name] = load.num_running
    name = max(loads, key=loads.__getitem__)
    assert loads[name] > 0, loads
    return name


def assert_same(answers: list[tuple[Answer, ...]], undisturbed: list[tuple[Answer, ...]]) -> None:
    for mine, others in zip(answers, undisturbed, strict=True):
        for one, other in zip(mine, others, strict=True):
            assert one.token_ids == other.token_ids
            assert one.text == other.text
            assert one.finish_reason == other.finish_reason
            assert one.num_generated_tokens == len(one.token_ids)
            assert [item.logprob for item in one.logprobs] == pytest.approx(
                [item.logprob for item in other.logprobs], abs=1e-3
            )
            # The prompt's own forward emits one token, each round one more than it accepted, the last one perhaps not.
            report = one.speculation
            assert report.num_rounds + report.num_accepted_tokens + 1 - one.num_generated_tokens in (0, 1)
            if report.rounds:
                assert [item.round for item in report.rounds] == list(range(report.num_rounds + 1))


@pytest.mark.slow
def test_two_verifiers_are_killed_and_eight_streams_go_on(tiny_target: Path, tmp_path: Path) -> None:
    async def scenario(trio: Trio) -> None:
        async with AsyncClient(trio.gateway_address) as client:
            undisturbed = await Streams(client).run()
            streams = Streams(client)
            running = asyncio.create_task(streams.run())
            await streams.until(200)
            first = await asyncio.to_thread(busiest, trio)
            trio.end(first, signal.SIGKILL)
            trio.start(first)
            # All go on at the second, which dies before the first is back: they wait for it.
            await streams.until(500)
            trio.end({"verifier": "verifier-2", "verifier-2": "verifier"}[first], signal.SIGKILL)
            assert_same(await running, undisturbed)

    flags = ["--failover-seconds", "60"]
    with Trio(target=str(tiny_target), draft=None, num_verifiers=2, gateway_flags=flags, log_folder=tmp_path) as trio:
        asyncio.run(scenario(trio))
    assert (tmp_path / "gateway.log").read_text().count("it goes on at") >= 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_verifier_that_stands_still_is_left_when_keepalive_notices(tiny_target: Path, tmp_path: Path) -> None:
    async def scenario(trio: Trio) -> None:
        async with AsyncClient(trio.gateway_address) as client:
            undisturbed = await Streams(client).run()
            streams = Streams(client)
            running = asyncio.create_task(streams.run())
            await streams.until(200)
            stopped = trio.processes[await asyncio.to_thread(busiest, trio)].pid
            os.kill(stopped, signal.SIGSTOP)
            try:
                # Silence of a second is probed, ten seconds later the connection is given up.
                assert_same(await asyncio.wait_for(running, 300), undisturbed)
            finally:
                os.kill(stopped, signal.SIGCONT)

    often = ["--keepalive-seconds", "1"]
    flags = {"verifier_flags": often, "gateway_flags": often}
    with Trio(target=str(tiny_target), draft=None, num_verifiers=2, log_folder=tmp_path, **flags) as trio:
        asyncio.run(scenario(trio))
    assert "it goes on at" in (tmp_path / "gateway.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_twenty_kills_at_random_moments_change_no_token(tiny_target: Path, tiny_draft: Path, tmp_path: Path) -> None:
    async def scenario(trio: Trio) -> None:
        moments = random.Random(13)
        async with AsyncClient(trio.gateway_address) as client:
            undisturbed = await Streams(client).run()
            num_kills = num_answers = 0

            async def stream() -> None:
                nonlocal num_answers
                while num_kills < 20:
                    assert_same(await Streams(client).run(), undisturbed)
                    num_answers += len(REQUESTS)

            async def kill() -> None:
                nonlocal num_kills
                while num_kills < 20:
                    await asyncio.sleep(moments.uniform(0.0, 3.0))
                    name = moments.choice(["verifier", "verifier-2"])
                    trio.end(name, signal.SIGKILL)
                    num_kills += 1
                    trio.start(name)  # the other one may be killed before this one serves
                    if moments.random() < 0.7:
                        await asyncio.to_thread(trio.wait_until_serving)
                await asyncio.to_thread(trio.wait_until_serving)

            await asyncio.gather(stream(), kill())
            print(f"{num_answers} answers over {num_kills} kills")

    # Bits must not depend on what is computed beside a stream, or rounding would be taken for a fault.
    verifier = ["--numerics", "fixed-shape", "--policy", "fixed:4,8,inf", "--reconnect-seconds", "0.2"]
    with Trio(
        target=str(tiny_target),
        draft=str(tiny_draft),
        num_verifiers=2,
        verifier_flags=verifier,
        speculator_flags=["--linear", "stock"],
        gateway_flags=["--failover-seconds", "120"],
        log_folder=tmp_path,
    ) as trio:
        await_speculation(trio)
        asyncio.run(scenario(trio))
    assert (tmp_path / "gateway.log").read_text().count("it goes on at") >= 20
