"""A background task that fails ends the process, with calls told and an exit code that gets it started anew."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.config import GatewaySettings
from saguaro.errors import ServiceFault
from saguaro.server import run_service, serve
from saguaro.v1 import verifier_pb2, verifier_pb2_grpc

DEADLINE_SECONDS = 20.0


class Endless(verifier_pb2_grpc.VerifierServiceServicer):
    """Answers once and never ends."""

    async def Generate(
        self, request: verifier_pb2.VerifierServiceGenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[verifier_pb2.VerifierServiceGenerateResponse]:
        yield verifier_pb2.VerifierServiceGenerateResponse()
        await asyncio.Event().wait()

    def register(self, server: grpc.aio.Server) -> list[str]:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)
        return ["saguaro.v1.VerifierService"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_what_keeps_readiness_and_fails_ends_the_service_and_its_calls() -> None:
    async def scenario() -> None:
        settings, fails, stopped = GatewaySettings(port=free_port()), asyncio.Event(), asyncio.Event()

        async def keep_ready(say_ready: Callable[[bool], Awaitable[None]]) -> None:
            await fails.wait()
            raise ServiceFault("a test's fault")

        async def on_stop() -> None:
            stopped.set()

        serving = asyncio.create_task(
            serve(settings, Endless().register, role="x", keep_ready=keep_ready, on_stop=on_stop)
        )
        async with grpc.aio.insecure_channel(f"127.0.0.1:{settings.port}") as channel:
            call = verifier_pb2_grpc.VerifierServiceStub(channel).Generate(
                verifier_pb2.VerifierServiceGenerateRequest(), timeout=DEADLINE_SECONDS, wait_for_ready=True
            )
            await call.read()
            watching = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), timeout=DEADLINE_SECONDS
            )
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
            fails.set()
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert await call.details() == "the x has failed"
            with pytest.raises(ServiceFault, match="a test's fault"):
                await asyncio.wait_for(serving, DEADLINE_SECONDS)
            assert stopped.is_set()

    asyncio.run(scenario())


def test_a_service_that_cannot_go_on_exits_with_1_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(settings: GatewaySettings) -> None:
        raise ServiceFault("the engine has ended")

    level, handlers = logging.root.level, list(logging.root.handlers)
    try:
        assert run_service(GatewaySettings, main, argv=[]) == 1
        assert "the engine has ended" in capsys.readouterr().err
    finally:
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
