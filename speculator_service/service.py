"""The gRPC face of the speculator: one multiplexed stream a verifier, and the handshake."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator

import grpc

from saguaro.channel import MAX_MESSAGE_BYTES
from saguaro.errors import InvalidRequest, Unavailable
from saguaro.types import SpeculatorFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceServicer
from saguaro.wire.speculator import speculator_info_to_proto, unreadable_opens, verifier_frame_from_proto
from saguaro.wire.speculator_frames import cut_to_protos
from speculator_service.intake import Intake
from speculator_service.outgoing import Outgoing
from speculator_service.stream import Stream
from speculator_service.worker import SpeculatorWorker

_MOST_STREAMS = 256
_MOST_ITEMS = 8192  # of a kind in one frame: twice as many as the sequences of the largest verifier


class SpeculatorService(SpeculatorServiceServicer):
    """Thin: everything that decides is in the scheduler. Messages are at most `max_message_bytes` long."""

    def __init__(self, worker: SpeculatorWorker, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._worker = worker
        self._max_message_bytes = min(max_message_bytes, MAX_MESSAGE_BYTES)  # more no verifier takes
        self._outgoing: set[Outgoing] = set()

    async def Speculate(
        self, request_iterator: AsyncIterator[pb.SpeculateRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SpeculateResponse]:
        """Frames in to the scheduler, frames out as they are drafted; the stream's end closes its sequences."""
        if len(self._outgoing) >= _MOST_STREAMS:
            raise Unavailable(f"{_MOST_STREAMS} verifiers are connected; a speculator serves no more")
        outgoing = Outgoing()
        stream = self._worker.scheduler.attach(outgoing.put)
        reader = asyncio.create_task(self._read(request_iterator, stream, outgoing))
        reader.add_done_callback(functools.partial(_end_with, outgoing))
        self._outgoing.add(outgoing)
        try:
            while (frame := await outgoing.get()) is not None:
                cut = cut_to_protos(frame, self._max_message_bytes)
                self._worker.scheduler.num_dropped_tokens += cut.num_dropped
                for message in cut.messages:
                    yield message
        finally:
            self._outgoing.discard(outgoing)
            self._worker.scheduler.detach(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)  # what it raised, `get` raised

    async def _read(self, requests: AsyncIterator[pb.SpeculateRequest], stream: Stream, outgoing: Outgoing) -> None:
        intake = Intake()
        async for request in requests:
            _check_size(request)
            num_bytes = request.ByteSize()
            await intake.admit(num_bytes)
            frame, refused = verifier_frame_from_proto(request), unreadable_opens(request)
            if refused:
                outgoing.put(SpeculatorFrame(statuses=refused))
            outgoing.forget(frame)
            self._worker.scheduler.submit(stream, frame, functools.partial(intake.taken, num_bytes))

    async def end_streams(self) -> None:
        """The speculator drains: verifiers go on without it at once."""
        for outgoing in self._outgoing:
            outgoing.end()

    async def GetSpeculatorInfo(
        self, request: pb.GetSpeculatorInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetSpeculatorInfoResponse:
        """Who the speculator is and what it can do."""
        return speculator_info_to_proto(self._worker.info)


def _check_size(request: pb.SpeculateRequest) -> None:
    """Raises InvalidRequest for more items than any verifier has to say at once."""
    for name, items in (("opens", request.opens), ("commits", request.commits), ("closes", request.closes)):
        if len(items) > _MOST_ITEMS:
            raise InvalidRequest(name, f"the frame has {len(items)} {name}; at most {_MOST_ITEMS} are taken at once")


def _end_with(outgoing: Outgoing, reader: asyncio.Task[None]) -> None:
    """Nothing comes in any more: the verifier ended the stream, or reading it failed, which the verifier is told."""
    fault = None if reader.cancelled() else reader.exception()
    outgoing.end(fault if isinstance(fault, Exception) else None)
