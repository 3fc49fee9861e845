"""A whole speculator behind a real port, in this process; tests speak to it as a verifier's link does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from saguaro.channel import channel_options
from saguaro.config import SpeculatorSettings
from saguaro.server import GrpcServer
from saguaro.types import SpeculationEntries, SpeculatorFrame, VerifierFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub, add_SpeculatorServiceServicer_to_server
from saguaro.wire.speculator import speculator_frame_from_proto, verifier_frame_to_proto
from speculator_service.service import SpeculatorService
from speculator_service.worker import SpeculatorWorker


@dataclass
class Port:
    worker: SpeculatorWorker
    service: SpeculatorService
    address: str
    max_message_bytes: int

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator[Link]:
        options = channel_options(max_message_bytes=self.max_message_bytes)
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            call = SpeculatorServiceStub(channel).Speculate()
            try:
                yield Link(call)
            finally:
                call.cancel()


@dataclass
class Link:
    """One stream, as a verifier holds it."""

    call: Any
    frames: list[SpeculatorFrame] = field(default_factory=list)

    async def say(self, frame: VerifierFrame | pb.SpeculateRequest) -> None:
        message = verifier_frame_to_proto(frame) if isinstance(frame, VerifierFrame) else frame
        await asyncio.wait_for(self.call.write(message), 20)

    async def hear(self) -> SpeculatorFrame:
        message = await asyncio.wait_for(self.call.read(), 60)
        assert message is not grpc.aio.EOF, await self.call.code()
        frame, malformed = speculator_frame_from_proto(message)
        assert not malformed
        self.frames.append(frame)
        return frame

    async def hear_complete(self, sequence_ids: Iterable[int], round: int) -> None:
        """Until the round of all of these is wholly guessed."""
        waiting = set(sequence_ids)
        while waiting:
            done = [item for item in (await self.hear()).entries if item.complete and item.round == round]
            waiting.difference_update(item.sequence_id for item in done)

    @property
    def entries(self) -> list[SpeculationEntries]:
        return [item for frame in self.frames for item in frame.entries]


@contextlib.asynccontextmanager
async def running_port(draft: Path, **settings: Any) -> AsyncIterator[Port]:
    options = {"draft": str(draft), "target": str(draft), "port": 0, "linear": "stock", **settings}
    made = SpeculatorSettings(**options)
    worker = SpeculatorWorker(made)
    service = SpeculatorService(worker, made.max_message_bytes)

    def register(server: grpc.aio.Server) -> list[str]:
        add_SpeculatorServiceServicer_to_server(service, server)
        return ["saguaro.v1.SpeculatorService"]

    server = GrpcServer(made, register, role="speculator")
    await server.start()
    try:
        await worker.start()
        await server.admit()
        yield Port(worker, service, server.address, made.max_message_bytes)
    finally:
        await server.stop()
        await worker.stop()
