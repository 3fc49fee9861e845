"""The gRPC face of the speculator: one multiplexed stream a verifier, and the handshake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from saguaro.types import SpeculatorFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceServicer
from saguaro.wire.speculator import speculator_frame_to_proto, speculator_info_to_proto, verifier_frame_from_proto
from speculator_service.stream import Stream
from speculator_service.worker import SpeculatorWorker


class SpeculatorService(SpeculatorServiceServicer):
    """Thin: everything that decides is in the scheduler."""

    def __init__(self, worker: SpeculatorWorker) -> None:
        self._worker = worker
        self._outgoing: set[asyncio.Queue[SpeculatorFrame | None]] = set()

    async def Speculate(
        self, request_iterator: AsyncIterator[pb.SpeculateRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SpeculateResponse]:
        """Frames in to the scheduler, frames out as they are drafted; the stream's end closes its sequences."""
        loop = asyncio.get_running_loop()
        outgoing: asyncio.Queue[SpeculatorFrame | None] = asyncio.Queue()
        stream = self._worker.scheduler.attach(lambda frame: _put(loop, outgoing, frame))
        reader = asyncio.create_task(self._read(request_iterator, stream, outgoing))
        self._outgoing.add(outgoing)
        try:
            while (frame := await outgoing.get()) is not None:
                yield speculator_frame_to_proto(frame)
        finally:
            self._outgoing.discard(outgoing)
            self._worker.scheduler.detach(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(
        self,
        requests: AsyncIterator[pb.SpeculateRequest],
        stream: Stream,
        outgoing: asyncio.Queue[SpeculatorFrame | None],
    ) -> None:
        try:
            async for request in requests:
                self._worker.scheduler.submit(stream, verifier_frame_from_proto(request))
        finally:
            outgoing.put_nowait(None)

    async def end_streams(self) -> None:
        """The speculator drains: verifiers go on without it at once."""
        for outgoing in self._outgoing:
            outgoing.put_nowait(None)

    async def GetSpeculatorInfo(
        self, request: pb.GetSpeculatorInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetSpeculatorInfoResponse:
        """Who the speculator is and what it can do."""
        return speculator_info_to_proto(self._worker.info)


def _put(
    loop: asyncio.AbstractEventLoop, outgoing: asyncio.Queue[SpeculatorFrame | None], frame: SpeculatorFrame
) -> None:
    """From the engine thread; a frame for a loop that is closed has nobody left to read it."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(outgoing.put_nowait, frame)
