"""Whole services, of which the speculator takes short messages only: long prompts are speculated, or cost no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc

from saguaro.config import SpeculatorSettings, VerifierSettings
from saguaro.server import GrpcServer
from saguaro.types import GenerationEvent, GenerationFinished, GenerationRequest
from saguaro.v1.speculator_pb2_grpc import add_SpeculatorServiceServicer_to_server
from speculator_service.service import SpeculatorService
from speculator_service.worker import SpeculatorWorker
from verifier_service.worker import VerifierWorker

SMALLEST_LIMIT = 65_536
PROFILE = """
vocabulary = 70000
context_limit = 65536
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 4
[draft]
base_ms = 0.5
"""


async def finished(worker: VerifierWorker, request: GenerationRequest) -> GenerationFinished:
    events: asyncio.Queue[GenerationEvent | Exception] = asyncio.Queue()
    worker.submit(request, events.put_nowait)
    while True:
        event = await asyncio.wait_for(events.get(), 60)
        assert not isinstance(event, Exception), event
        if isinstance(event, GenerationFinished):
            return event


def prompt(number: int, length: int) -> tuple[int, ...]:
    return tuple(40_000 + (number * 31 + index) % 20_000 for index in range(length))  # three bytes each on the wire


def test_many_long_prompts_are_all_speculated_but_for_the_one_that_no_message_holds(tmp_path: Path) -> None:
    profile = tmp_path / "pair.toml"
    profile.write_text(PROFILE)
    whole = {"emulate": str(profile), "port": 0, "kv_tokens": 1 << 18}
    takes_little = SpeculatorSettings(**whole, max_message_bytes=SMALLEST_LIMIT)  # type: ignore[arg-type]

    async def scenario() -> list[GenerationFinished]:
        speculator = SpeculatorWorker(takes_little)

        def register(server: grpc.aio.Server) -> list[str]:
            add_SpeculatorServiceServicer_to_server(SpeculatorService(speculator), server)
            return ["saguaro.v1.SpeculatorService"]

        server = GrpcServer(takes_little, register, role="speculator")
        await server.start()
        await speculator.start()
        await server.admit()
        settings = VerifierSettings(
            **whole,  # type: ignore[arg-type]
            speculator=server.address,
            policy="fixed:4,8,inf",
            reconnect_seconds=0.1,
            prefill_chunk_tokens=1 << 16,
        )
        verifier = VerifierWorker(settings)
        try:
            await verifier.start()
            async with asyncio.timeout(20):
                while not verifier.info.speculating:  # noqa: ASYNC110  # told by another thread
                    await asyncio.sleep(0.02)
            lengths = [6000] * 12 + [30_000]
            requests = [
                GenerationRequest(str(number), prompt(number, length), max_tokens=200, ignore_eos=True)
                for number, length in enumerate(lengths)
            ]
            return await asyncio.gather(*(finished(verifier, request) for request in requests))
        finally:
            await verifier.stop()
            await server.stop()
            await speculator.stop()

    *fitting, longest = asyncio.run(scenario())
    for answer in fitting:
        assert answer.speculation.speculating, answer.speculation.reason
        assert answer.speculation.num_accepted_tokens
    assert not longest.speculation.speculating
    assert "context_limit" in longest.speculation.reason
