"""A verifier or a speculator on a real port, with its threads and health, and a model that obeys the test."""

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
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.config import SpeculatorSettings, VerifierSettings
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner
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
    service: VerifierService | SpeculatorService

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
    most = settings.max_message_bytes
    service = VerifierService(worker, most) if isinstance(worker, VerifierWorker) else SpeculatorService(worker, most)

    def register(server: grpc.aio.Server) -> list[str]:
        if isinstance(service, VerifierService):
            verifier_pb2_grpc.add_VerifierServiceServicer_to_server(service, server)
            return ["saguaro.v1.VerifierService"]
        speculator_pb2_grpc.add_SpeculatorServiceServicer_to_server(service, server)
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
            yield House(worker, faulty, channel, serving, service)
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


def with_verifier(
    tiny: TinyModels, scenario: Callable[[House], Coroutine[Any, Any, None]], **settings_of: object
) -> None:
    common = {"speculator": "", "kv_tokens": 1024, "drain_seconds": 1, "stall_seconds": 0.5}
    settings = VerifierSettings(target=str(tiny.target), port=free_port(), **(common | settings_of))  # type: ignore[arg-type]

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
