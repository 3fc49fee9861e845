"""The bootstrap on real sockets: typed errors, health, reflection, drain, ports, signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, InvalidRequest, Unavailable
from saguaro.server import GrpcServer, current_request_id, serve
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.status import error_of

SERVICE = "saguaro.v1.GatewayService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class Servicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Raises what it is told to; streams until it is let go."""

    error: Exception | None = None
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    request_ids: list[str] = field(default_factory=list)

    async def Tokenize(self, request: Any, context: Any) -> pb.TokenizeResponse:
        self.request_ids.append(current_request_id())
        if self.error is not None:
            raise self.error
        return pb.TokenizeResponse(token_ids=[1])

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        yield pb.GenerateResponse(delta=pb.AnswerDelta(text="first"))
        if self.error is not None:
            raise self.error
        await self.let_go.wait()
        yield pb.GenerateResponse(delta=pb.AnswerDelta(text="last"))

    def register(self, server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(self, server)
        return [SERVICE]


@contextlib.asynccontextmanager
async def running(servicer: Servicer) -> AsyncIterator[tuple[GrpcServer, Any]]:
    server = GrpcServer(GatewaySettings(port=0), servicer.register, role="gateway")
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield server, channel
    await server.stop()


def stub(channel: Any) -> Any:
    return gateway_pb2_grpc.GatewayServiceStub(channel)


async def status(channel: Any, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int((await health_pb2_grpc.HealthStub(channel).Check(request)).status)


def test_calls_are_refused_until_the_service_is_ready_and_health_says_so() -> None:
    async def scenario() -> None:
        async with running(Servicer()) as (server, channel):
            assert await status(channel) == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="the gateway is starting") as caught:
                await stub(channel).Tokenize(pb.TokenizeRequest())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await server.admit()
            assert await status(channel) == await status(channel, SERVICE) == SERVING
            assert (await stub(channel).Tokenize(pb.TokenizeRequest())).token_ids == [1]

    asyncio.run(scenario())


def test_errors_of_the_tree_arrive_with_code_words_and_field_from_both_kinds_of_calls() -> None:
    async def scenario() -> None:
        async with running(Servicer(error=InvalidRequest("prompt", "too long"))) as (server, channel):
            await server.admit()
            calls = (
                stub(channel).Tokenize(pb.TokenizeRequest()),
                drained(stub(channel).Generate(pb.GenerateRequest())),
            )
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                error = error_of(caught.value, "the server")
                assert isinstance(error, InvalidRequest)
                assert (str(error), error.field) == ("too long", "prompt")

    asyncio.run(scenario())


def test_an_unknown_exception_tells_only_its_request_id_and_the_log_tells_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids: list[str] = []

    async def scenario() -> None:
        servicer = Servicer(error=ZeroDivisionError("the secret"))
        async with running(servicer) as (server, channel):
            await server.admit()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub(channel).Tokenize(pb.TokenizeRequest(), metadata=(("x-request-id", "abc123"),))
            assert caught.value.code() is grpc.StatusCode.INTERNAL
            assert servicer.request_ids[0] in str(caught.value.details())
            assert "secret" not in str(caught.value.details())
            assert "abc123" not in servicer.request_ids
            ids.extend(servicer.request_ids)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    (record,) = [item for item in caplog.records if item.name != "asyncio"]  # gRPC's poller may complain there
    assert f"request {ids[0]} (its caller's: abc123)" in record.getMessage()
    assert "the secret" in caplog.text


async def drained(call: Any) -> list[str]:
    return [message.delta.text async for message in call]


def test_a_drain_refuses_new_calls_and_finishes_those_that_run() -> None:
    async def scenario() -> None:
        servicer = Servicer()
        async with running(servicer) as (server, channel):
            await server.admit()
            call = stub(channel).Generate(pb.GenerateRequest())
            assert (await call.read()).delta.text == "first"
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            told = asyncio.Event()

            async def on_drain() -> None:
                told.set()

            stopping = asyncio.ensure_future(server.stop(20, on_drain))
            # The watch is pushed, not polled, and does not hold up the end.
            assert (await watch.read()).status == NOT_SERVING
            await asyncio.wait_for(told.wait(), 5)
            with pytest.raises(grpc.aio.AioRpcError, match="the gateway is draining"):
                await stub(channel).Tokenize(pb.TokenizeRequest())
            servicer.let_go.set()
            assert (await call.read()).delta.text == "last"
            await asyncio.wait_for(stopping, 5)

    asyncio.run(scenario())


def test_a_call_that_outlasts_the_drain_is_cut_and_told_to_go_elsewhere() -> None:
    async def scenario() -> None:
        async with running(Servicer()) as (server, channel):
            await server.admit()
            call = stub(channel).Generate(pb.GenerateRequest())
            await call.read()
            await asyncio.wait_for(server.stop(0.05), 5)
            with pytest.raises(grpc.aio.AioRpcError, match=r"the gateway drained for 0\.05 s and ends") as cut:
                await call.read()
            error = error_of(cut.value, "the gateway")
            assert isinstance(error, Unavailable)
            assert error.retry_after_seconds == 1.0

    asyncio.run(scenario())


def test_reflection_names_the_services() -> None:
    async def scenario() -> set[str]:
        async with running(Servicer()) as (_, channel):
            asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)
            return {item.name for item in (await call.read()).list_services_response.service}

    assert {SERVICE, "grpc.health.v1.Health"} <= asyncio.run(scenario())


def test_a_taken_port_is_one_sentence_with_the_address() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = GrpcServer(GatewaySettings(port=port), Servicer().register, role="gateway")
            with pytest.raises(ConfigurationError, match=f"gateway cannot listen on 127.0.0.1:{port}: .*in use"):
                await server.start()

    asyncio.run(scenario())


@pytest.mark.parametrize("while_starting", [False, True])
def test_sigterm_ends_a_service_that_serves_and_one_that_still_starts(while_starting: bool) -> None:
    order: list[str] = []

    async def ready() -> None:
        order.append("ready")
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        if while_starting:
            await asyncio.Event().wait()

    async def on_stop() -> None:
        order.append("stop")

    async def scenario() -> None:
        served = serve(GatewaySettings(port=0), Servicer().register, role="gateway", ready=ready, on_stop=on_stop)
        await asyncio.wait_for(served, 10)

    asyncio.run(scenario())
    assert order == ["ready", "stop"]


def test_a_service_that_cannot_become_ready_says_why_and_is_cleaned_up() -> None:
    stopped = []

    async def ready() -> None:
        raise ConfigurationError("no model at /x")

    async def on_stop() -> None:
        stopped.append(True)

    with pytest.raises(ConfigurationError, match="no model at /x"):
        asyncio.run(serve(GatewaySettings(port=0), Servicer().register, role="gateway", ready=ready, on_stop=on_stop))
    assert stopped == [True]
