"""Verifier and speculator with real threads, ports and health, and a model that hangs or fails at the test's word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.config import SpeculatorSettings, VerifierSettings
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner
from saguaro.errors import ServiceFault
from saguaro.server import serve
from saguaro.v1 import speculator_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from speculator_service.service import SpeculatorService
from speculator_service.worker import SpeculatorWorker
from tests.unit.services.conftest import TinyModels
from verifier_service.service import VerifierService
from verifier_service.worker import VerifierWorker

DEADLINE_SECONDS = 30.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Faulty:
    """A runner that does what the test says."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.fails = False
        self.hold = threading.Event()
        self.hold.set()

    def forward(self, chunks: Sequence[Chunk]) -> Logits:
        self.hold.wait(DEADLINE_SECONDS)
        if self.fails:
            raise RuntimeError("CUDA error: the test's")
        return self._runner.forward(chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@dataclass
class House:
    worker: VerifierWorker | SpeculatorWorker
    runner: Faulty
    channel: grpc.aio.Channel
    serving: asyncio.Task[None]

    @property
    def verifier(self) -> verifier_pb2_grpc.VerifierServiceStub:
        return verifier_pb2_grpc.VerifierServiceStub(self.channel)

    async def generate(self, request_id: str) -> list[int]:
        message = verifier_pb2.VerifierServiceGenerateRequest(
            request_id=request_id, prompt_token_ids=range(40, 63), max_tokens=8
        )
        tokens: list[int] = []
        async for response in self.verifier.Generate(message, timeout=DEADLINE_SECONDS):
            tokens += response.run.token_ids
        return tokens

    async def health(self, wanted: int) -> None:
        """Waits until a watch says so."""
        watching = health_pb2_grpc.HealthStub(self.channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=DEADLINE_SECONDS
        )
        async for response in watching:
            if response.status == wanted:
                watching.cancel()
                return


@contextlib.asynccontextmanager
async def house(worker: VerifierWorker | SpeculatorWorker, settings: Any) -> AsyncIterator[House]:
    started = asyncio.Event()

    def register(server: grpc.aio.Server) -> list[str]:
        if isinstance(worker, VerifierWorker):
            verifier_pb2_grpc.add_VerifierServiceServicer_to_server(VerifierService(worker), server)
            return ["saguaro.v1.VerifierService"]
        speculator_pb2_grpc.add_SpeculatorServiceServicer_to_server(SpeculatorService(worker), server)
        return ["saguaro.v1.SpeculatorService"]

    async def ready() -> None:
        await worker.start()
        started.set()

    serving = asyncio.create_task(
        serve(settings, register, role="test", ready=ready, keep_ready=worker.keep_ready, on_stop=worker.stop)
    )
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert started.is_set(), serving
    runner = worker._runner if isinstance(worker, VerifierWorker) else worker._model.runner
    faulty = Faulty(runner.watched)
    runner.watched = faulty
    async with grpc.aio.insecure_channel(f"127.0.0.1:{settings.port}") as channel:
        try:
            yield House(worker, faulty, channel, serving)
        finally:
            faulty.hold.set()
            if not serving.done():
                os.kill(os.getpid(), signal.SIGTERM)
                await serving


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def with_verifier(tiny: TinyModels, scenario: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    settings = VerifierSettings(
        target=str(tiny.target), speculator="", port=free_port(), kv_tokens=1024, drain_seconds=1, stall_seconds=0.5
    )

    async def run() -> None:
        async with asyncio.timeout(2 * DEADLINE_SECONDS), house(VerifierWorker(settings), settings) as it:
            await scenario(it)

    asyncio.run(run())


def with_speculator(tiny: TinyModels, scenario: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    settings = SpeculatorSettings(
        draft=str(tiny.draft), target=str(tiny.target), port=free_port(), kv_tokens=1024, stall_seconds=0.5
    )

    async def run() -> None:
        async with asyncio.timeout(2 * DEADLINE_SECONDS), house(SpeculatorWorker(settings), settings) as it:
            await scenario(it)

    asyncio.run(run())


def test_a_hung_forward_turns_health_and_one_that_comes_back_turns_it_again(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        await house.health(SERVING)
        expected = await house.generate("before")
        house.runner.hold.clear()
        answering = asyncio.create_task(house.generate("hung"))
        await house.health(NOT_SERVING)
        house.runner.hold.set()
        assert await answering == expected
        await house.health(SERVING)

    with_verifier(tiny, scenario)


def test_a_model_that_fails_turns_health_and_requests_may_go_elsewhere_until_it_works_again(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        expected = await house.generate("before")
        house.runner.fails = True
        for request_id in ("met by the fault", "come after it"):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await house.generate(request_id)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        await house.health(NOT_SERVING)
        house.runner.fails = False
        await house.health(SERVING)
        assert await house.generate("after") == expected

    with_verifier(tiny, scenario)


def test_a_dead_engine_thread_ends_the_verifier_and_its_calls_may_go_elsewhere(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, VerifierWorker)

        def fail(error: Exception) -> None:
            raise ZeroDivisionError("the handler's fault")

        house.worker._thread._on_fault = fail
        house.runner.fails = True
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await house.generate("met by the fault")
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ServiceFault, match="has ended"):
            await house.serving

    with_verifier(tiny, scenario)


def test_a_hung_speculator_turns_its_health_and_back(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, SpeculatorWorker)
        await house.health(SERVING)
        house.runner.hold.clear()
        house.worker.scheduler._post(lambda: bool(house.runner.hold.wait(DEADLINE_SECONDS)) and None)
        await house.health(NOT_SERVING)
        house.runner.hold.set()
        await house.health(SERVING)

    with_speculator(tiny, scenario)


def test_a_dead_engine_thread_ends_the_speculator(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, SpeculatorWorker)

        def fail(*ignored: object) -> None:
            raise ZeroDivisionError("the handler's fault")

        house.worker._thread._on_fault = fail
        house.worker._thread._step = fail
        with pytest.raises(ServiceFault, match="has ended"):
            await house.serving

    with_speculator(tiny, scenario)
