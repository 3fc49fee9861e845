"""Deadlines, retries, keys and several gateways, as both clients have them, over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from saguaro.client import NO_RETRY, AsyncClient, Client, Retry
from saguaro.client.target import target_of
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, DeadlineExceeded, InvalidRequest, SequenceFault, Unavailable
from saguaro.server import GrpcServer
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from tests.unit.gateway.house import running_house, serving

QUICK = Retry(first_wait_seconds=0.01)


@dataclass
class Gateway(gateway_pb2_grpc.GatewayServiceServicer):
    """Raises the next of `errors` before the first token or, `after_token`, behind it; then answers "ok"."""

    errors: list[Exception] = field(default_factory=list)
    after_token: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        self.calls.append(dict(context.invocation_metadata()))
        yield pb.GenerateResponse(started=pb.AnswerStarted(request_id="r", model="m", seed=1, acceptance_mode=1))
        if self.errors and not self.after_token:
            raise self.errors.pop(0)
        yield pb.GenerateResponse(delta=pb.AnswerDelta(text="o", token_ids=[5], provenance=[4]))
        if self.errors:
            raise self.errors.pop(0)
        yield pb.GenerateResponse(finished=pb.AnswerFinished(reason=1, text="k", num_generated_tokens=1))

    async def Tokenize(self, request: Any, context: Any) -> pb.TokenizeResponse:
        self.calls.append(dict(context.invocation_metadata()))
        if self.errors:
            raise self.errors.pop(0)
        return pb.TokenizeResponse(token_ids=[len(self.calls)])


def serve(gateway: Gateway) -> GrpcServer:
    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, server)
        return ["saguaro.v1.GatewayService"]

    return GrpcServer(GatewaySettings(port=0, http_port=None), register, role="gateway")


Ask = Callable[[str, Retry, float | None], Awaitable[Any]]


async def ask_async(address: str, retry: Retry, seconds: float | None) -> Any:
    async with AsyncClient(address, retry=retry, api_key="k1") as client:
        return await client.generate("Hi", timeout_seconds=seconds).finish()


async def ask_sync(address: str, retry: Retry, seconds: float | None) -> Any:
    def work() -> Any:
        with Client(address, retry=retry, api_key="k1") as client:
            return client.generate("Hi", timeout_seconds=seconds).finish()

    return await asyncio.to_thread(work)


BOTH = pytest.mark.parametrize("ask", [ask_sync, ask_async])


def with_gateway(gateway: Gateway, work: Callable[[str], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with serving(serve(gateway)) as server:
            await work(server.address)

    asyncio.run(scenario())


@BOTH
def test_before_the_first_token_an_unavailable_gateway_is_asked_again_when_it_says(ask: Ask) -> None:
    gateway = Gateway([Unavailable("queue full", 0.3), Unavailable("queue full", 0.0)])

    async def work(address: str) -> None:
        began = time.monotonic()
        answer = await ask(address, QUICK, None)
        assert (answer.text, answer.token_ids) == ("ok", (5,)), "nothing of the failed attempts is left"
        assert time.monotonic() - began >= 0.3
        assert answer.ttft_seconds >= 0.3, "waits count"
        assert len(gateway.calls) == 3
        assert {call["authorization"] for call in gateway.calls} == {"Bearer k1"}

    with_gateway(gateway, work)


@BOTH
@pytest.mark.parametrize(
    ("gateway", "retry", "timeout", "calls"),
    [
        (Gateway([Unavailable("busy", 0.0)] * 9), QUICK, None, 3),
        (Gateway([Unavailable("busy", 0.0)] * 9), NO_RETRY, None, 1),
        (Gateway([Unavailable("busy", 60.0)] * 9), QUICK, None, 1),  # longer than anyone waits
        (Gateway([Unavailable("busy", 5.0)] * 9), QUICK, 4.0, 1),  # the deadline would be over
        (Gateway([Unavailable("busy", 0.0)], after_token=True), QUICK, None, 1),
    ],
)
def test_attempts_end(ask: Ask, gateway: Gateway, retry: Retry, timeout: float | None, calls: int) -> None:
    fresh = Gateway(list(gateway.errors), gateway.after_token)

    async def work(address: str) -> None:
        with pytest.raises(Unavailable, match="busy"):
            await ask(address, retry, timeout)
        assert len(fresh.calls) == calls

    with_gateway(fresh, work)


@BOTH
@pytest.mark.parametrize("error", [InvalidRequest("x", "no"), SequenceFault("no")])
def test_other_errors_are_not_tried_again(ask: Ask, error: Exception) -> None:
    gateway = Gateway([error])

    async def work(address: str) -> None:
        with pytest.raises(type(error), match="no"):
            await ask(address, QUICK, None)
        assert len(gateway.calls) == 1

    with_gateway(gateway, work)


def test_single_calls_are_tried_again_too() -> None:
    gateway = Gateway([Unavailable("busy", 0.0)])

    async def work(address: str) -> None:
        async with AsyncClient(address, retry=QUICK) as client:
            assert await client.tokenize("x") == (2,)
        assert "authorization" not in gateway.calls[0]

    with_gateway(gateway, work)


@BOTH
def test_a_deadline_is_an_error_of_its_own(text_folder: Path, ask: Ask) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house:
            # Both ends keep the deadline: whichever sees it pass first says so.
            with pytest.raises(DeadlineExceeded, match=r"not finish(ed within| before the deadline)"):
                await ask(house.address, QUICK, 0.3)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_a_cancelled_stream_ends_and_has_no_result(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, AsyncClient(house.address) as client:
            stream = client.generate("Hi")
            async for _ in stream:
                stream.cancel()
            with pytest.raises(RuntimeError, match="has not ended"):
                _ = stream.result
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

            def work() -> None:
                with Client(house.address) as blocking, blocking.generate("Hi") as second:
                    for _ in second:
                        second.cancel()

            await asyncio.to_thread(work)

    asyncio.run(scenario())


def test_a_task_that_is_cancelled_stays_cancelled(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, AsyncClient(house.address) as client:
            task = asyncio.create_task(client.generate("Hi").finish())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_calls_go_round_several_gateways_and_past_one_that_is_gone() -> None:
    async def scenario() -> None:
        gateways = [Gateway(), Gateway()]
        async with serving(serve(gateways[0])) as first, serving(serve(gateways[1])) as second:
            addresses = [first.address, second.address.replace("127.0.0.1", "localhost")]
            async with AsyncClient(addresses, retry=QUICK) as client:
                for _ in range(8):
                    await client.generate("Hi").finish()
                assert min(len(gateway.calls) for gateway in gateways) >= 2
                await second.stop()
                before = len(gateways[0].calls)
                for _ in range(4):
                    await client.generate("Hi").finish()
                assert len(gateways[0].calls) == before + 4

    asyncio.run(scenario())


def test_addresses_become_one_target() -> None:
    assert target_of(["dns:///gateway:1"]) == "dns:///gateway:1"
    assert target_of(["127.0.0.1:1", "127.0.0.2:2"]) == "ipv4:127.0.0.1:1,127.0.0.2:2"
    assert target_of(["[::1]:1", "[::1]:2"]) == "ipv6:[::1]:1,[::1]:2"
    for addresses, message in (
        ([], "give at least one"),
        (["127.0.0.1:1", "127.0.0.1"], "is no address"),
        (["127.0.0.1:1", "[::1]:1"], "addresses of one kind"),
        (["127.0.0.1:1", "no.such.invalid:1"], "cannot be looked up"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            target_of(addresses)
