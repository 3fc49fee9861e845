"""A speculator's port that says, byte for byte, what a test wants, and a link that tells a test what it hears."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from saguaro.channel import Tls
from saguaro.types import (
    PROTOCOL_VERSION,
    AcceptanceMode,
    ModelIdentity,
    SpeculatorFrame,
    SpeculatorInfo,
    VerifierFrame,
)
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.speculator import speculator_info_to_proto
from verifier_service.speculator_link import LinkEvents, SpeculatorLink
from verifier_service.traffic import Traffic

IDENTITY = ModelIdentity("target", "f" * 64, 256, 64, "float32")
HANDSHAKE = speculator_info_to_proto(
    SpeculatorInfo(PROTOCOL_VERSION, IDENTITY, (AcceptanceMode.COUPLED,), 4, 8, 64, 64, 0)
).SerializeToString()

# What a test does with the n-th stream, from 0 on.
Script = Callable[[int, grpc.aio.ServicerContext], Awaitable[None]]


@dataclass
class Peer:
    """A raw port. What came in, as messages."""

    script: Script
    handshakes: list[bytes] = field(default_factory=lambda: [HANDSHAKE])  # the last one is repeated
    received: list[pb.SpeculateRequest] = field(default_factory=list)
    num_streams: int = 0

    async def info(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return self.handshakes.pop(0) if len(self.handshakes) > 1 else self.handshakes[0]

    async def speculate(self, requests: object, context: grpc.aio.ServicerContext) -> None:
        self.num_streams += 1
        await self.script(self.num_streams - 1, context)

    async def take(self, context: grpc.aio.ServicerContext) -> None:
        """Read until the verifier ends."""
        while (message := await context.read()) is not grpc.aio.EOF:
            self.received.append(pb.SpeculateRequest.FromString(message))


@contextlib.asynccontextmanager
async def port_of(peer: Peer, *, max_message_bytes: int = 64 << 20) -> AsyncIterator[str]:
    """host:port, in plain text."""
    limits = [("grpc.max_receive_message_length", max_message_bytes), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=limits)
    calls = {
        "GetSpeculatorInfo": grpc.unary_unary_rpc_method_handler(peer.info),
        "Speculate": grpc.stream_stream_rpc_method_handler(peer.speculate),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("saguaro.v1.SpeculatorService", calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@dataclass
class Heard:
    """What a link told, in order, and the task that runs it."""

    task: asyncio.Task[None]
    link: SpeculatorLink
    frames: list[SpeculatorFrame] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    sends: list[Callable[[VerifierFrame], None]] = field(default_factory=list)

    async def until(self, holds: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait for what the link tells; its task must not end meanwhile."""
        async with asyncio.timeout(seconds):
            while not holds():
                assert not self.task.done(), "the link's task has ended"
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def linked(
    address: str, *, reconnect_seconds: float = 0.05, tls: Tls | None = None, identity: ModelIdentity = IDENTITY
) -> AsyncIterator[Heard]:
    """A running link to the address."""
    heard: Heard

    events = LinkEvents(
        lambda send, info: heard.sends.append(send),
        lambda frame: heard.frames.append(frame),
        lambda reason: heard.reasons.append(reason),
    )
    link = SpeculatorLink(address, identity, events, Traffic(lambda: 0), reconnect_seconds=reconnect_seconds, tls=tls)
    heard = Heard(asyncio.ensure_future(link.run()), link)
    try:
        yield heard
    finally:
        heard.task.cancel()
        await asyncio.gather(heard.task, return_exceptions=True)
