"""Health on real sockets: pushed to those who watch, and held up by none of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.config import GatewaySettings, SpeculatorSettings, VerifierSettings
from saguaro.config.services import ServiceSettings
from saguaro.server import GrpcServer
from saguaro.server.health import HealthService
from tests.unit.server.deaf_client import deaf_client

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
WATCH = "/grpc.health.v1.Health/Watch"


def watching(channel: Any, service: str = "") -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))


@contextlib.asynccontextmanager
async def deaf_watcher(server: GrpcServer) -> AsyncIterator[None]:
    deaf = deaf_client(server.address, WATCH, num_calls=8)
    await asyncio.to_thread(deaf.__enter__)
    try:
        yield
    finally:
        deaf.__exit__(None, None, None)


async def next_status(watch: Any) -> int:
    return int((await asyncio.wait_for(watch.read(), 5)).status)


@pytest.mark.parametrize("settings", [GatewaySettings(port=0), VerifierSettings(), SpeculatorSettings(port=0)])
def test_a_watcher_that_reads_nothing_holds_up_neither_a_change_nor_the_end(settings: ServiceSettings) -> None:
    async def scenario() -> None:
        port_free = settings.model_copy(update={"port": 0})
        server = GrpcServer(port_free, lambda server: [], role=settings.role)
        await server.start()
        await server.admit()
        async with deaf_watcher(server), grpc.aio.insecure_channel(server.address) as channel:
            watch = watching(channel)
            assert await next_status(watch) == SERVING
            for is_ready in (False, True, False):
                await asyncio.wait_for(server.say_ready(is_ready), 5)
                assert await next_status(watch) == (SERVING if is_ready else NOT_SERVING)
            await asyncio.wait_for(server.say_ready(True), 5)
            assert await next_status(watch) == SERVING
            stopping = asyncio.create_task(server.stop(5))
            assert await next_status(watch) == NOT_SERVING
            await asyncio.wait_for(stopping, 5)

    asyncio.run(scenario())


async def is_taken(watch: Any) -> bool:
    try:
        await watch.read()
    except grpc.aio.AioRpcError:
        return False
    return True


class Reader:
    """Stands where gRPC's context does: takes what is written, or not, and says what was."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.refusal = ""

    async def write(self, response: health_pb2.HealthCheckResponse) -> None:
        await self.takes.wait()
        self.statuses.append(response.status)

    async def abort_with_status(self, status: Any) -> None:
        self.refusal = status.details
        raise grpc.aio.AbortError


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_watcher_that_reads_nothing_is_let_go_on_the_wire_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        health = HealthService(max_watchers=8, write_seconds=0.1)
        monkeypatch.setattr("saguaro.server.grpc_server.HealthService", lambda: health)
        server = GrpcServer(GatewaySettings(port=0), lambda server: [], role="gateway")
        await server.start()
        async with deaf_watcher(server), grpc.aio.insecure_channel(server.address) as channel:
            async with asyncio.timeout(10):
                while not await is_taken(watching(channel)):  # noqa: ASYNC110  # the deaf ones are eight
                    await asyncio.sleep(0.02)
            await asyncio.wait_for(server.stop(5), 5)

    asyncio.run(scenario())


def test_a_watcher_that_was_behind_sees_the_last_of_what_it_missed() -> None:
    async def scenario() -> None:
        health, reader = HealthService(), Reader()
        watch = asyncio.create_task(health.Watch(health_pb2.HealthCheckRequest(service="a"), reader))
        await settled()
        assert reader.statuses == [health_pb2.HealthCheckResponse.SERVICE_UNKNOWN]
        reader.takes.clear()
        for number in range(1001):
            health.set("a", is_serving=number % 2 == 1)
            await settled()
        reader.takes.set()
        await settled()
        assert reader.statuses[1:] == [NOT_SERVING]  # what was on its way is also what holds
        health.set("a", is_serving=True)
        health.close()
        health.set("a", is_serving=True)
        await settled()
        assert reader.statuses[1:] == [NOT_SERVING]
        watch.cancel()

    asyncio.run(scenario())


def test_watchers_are_counted_and_one_that_takes_nothing_is_let_go() -> None:
    async def scenario() -> None:
        health = HealthService(max_watchers=2, write_seconds=0.05)
        request, deaf = health_pb2.HealthCheckRequest(), Reader()
        deaf.takes.clear()
        watches = [asyncio.create_task(health.Watch(request, reader)) for reader in (Reader(), deaf)]
        await settled()
        refused = Reader()
        with pytest.raises(grpc.aio.AbortError):
            await health.Watch(request, refused)
        assert refused.refusal == "2 calls watch this health; it takes 2"
        await asyncio.wait_for(watches[1], 5)
        watches.append(asyncio.create_task(health.Watch(request, Reader())))
        await settled()
        assert [watch.done() for watch in watches] == [False, True, False]
        for watch in watches:
            watch.cancel()

    asyncio.run(scenario())
