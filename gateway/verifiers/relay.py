"""The gateway's end of a relay: one stream to a verifier carries all generations that it has from here."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc

from gateway.verifiers.away import VerifierAway, failed, refused
from gateway.verifiers.inbox import Inbox
from saguaro.errors import DeadlineExceeded, SaguaroError, Unavailable
from saguaro.types import GenerationEvent, GenerationFinished, GenerationRequest
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.verifier import event_from_proto, generation_request_to_proto, resume_request_to_proto


class Relay:
    """Opens a stream when a generation needs one, and another after that one has ended."""

    def __init__(self, stub: Any, peer: str) -> None:
        self._stub = stub
        self._peer = peer
        self._stream: _Stream | None = None

    async def close(self) -> None:
        """End the stream and every generation on it."""
        if self._stream is not None:
            await self._stream.close()

    async def generate(
        self, request: GenerationRequest, timeout_seconds: float
    ) -> AsyncGenerator[list[GenerationEvent]]:
        """Events of one generation, new or resumed: those that have come since the last, up to Finished.

        Closing the iterator early aborts the generation. Raises from the error tree; DeadlineExceeded when late.
        """
        if self._stream is None or self._stream.has_ended:
            self._stream = _Stream(self._stub, self._peer)
        stream, inbox = self._stream, Inbox()
        late = DeadlineExceeded(f"{self._peer} did not finish before the deadline")
        clock = asyncio.get_running_loop().call_later(timeout_seconds, inbox.fail, late)
        number = stream.begin(request, inbox)
        try:
            while True:
                events = await inbox.take()
                yield events
                if isinstance(events[-1], GenerationFinished):
                    return
        finally:
            clock.cancel()
            stream.cancel(number)

    def stop(self, request_id: str) -> None:
        """End a generation early: its last event comes at once. Harmless when it has ended already."""
        if self._stream is not None:
            self._stream.stop(request_id)


class _Stream:
    """One call. A generation is on it from `begin` until its last event has come, or it is cancelled."""

    def __init__(self, stub: Any, peer: str) -> None:
        self._peer = peer
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, tuple[str, Inbox]] = {}  # with the request ids
        self._commands: asyncio.Queue[pb.RelayRequest] = asyncio.Queue()
        self.has_ended = False
        self._call = stub.Relay(self._requests())
        self._reading = asyncio.create_task(self._read())

    def begin(self, request: GenerationRequest, inbox: Inbox) -> int:
        """Its number; its events go to the inbox."""
        number = next(self._numbers)
        self._inboxes[number] = request.request_id, inbox
        if request.resumption is None:
            command = pb.RelayRequest(generation_id=number, generate=generation_request_to_proto(request))
        else:
            resume = resume_request_to_proto(request, request.resumption)
            command = pb.RelayRequest(generation_id=number, resume=resume)
        self._commands.put_nowait(command)
        return number

    def stop(self, request_id: str) -> None:
        """See `Relay.stop`."""
        for number, (known, _) in self._inboxes.items():
            if known == request_id:
                self._commands.put_nowait(pb.RelayRequest(generation_id=number, stop=pb.StopGeneration()))

    def cancel(self, number: int) -> None:
        """Nobody reads the inbox any more."""
        if self._inboxes.pop(number, None) is not None:
            self._commands.put_nowait(pb.RelayRequest(generation_id=number, cancel=pb.CancelGeneration()))

    async def close(self) -> None:
        """End the call."""
        self._call.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _requests(self) -> AsyncIterator[pb.RelayRequest]:
        while True:
            yield await self._commands.get()

    async def _read(self) -> None:
        # Where the verifier ends the stream with generations on it, it has drained.
        reason: SaguaroError = VerifierAway(Unavailable(f"{self._peer} has ended its stream"), is_refusal=True)
        try:
            async for message in self._call:
                for event in message.events:
                    self._take(event)
        except grpc.aio.AioRpcError as error:
            reason = failed(error, self._peer)
        except asyncio.CancelledError:
            reason = VerifierAway(Unavailable(f"{self._peer} is not used any more"), is_refusal=False)
        finally:
            self.has_ended = True
            with contextlib.suppress(Exception):
                self._call.cancel()  # also ends the task that sends commands
            for _, inbox in self._inboxes.values():
                inbox.fail(reason)
            self._inboxes.clear()

    def _take(self, relayed: pb.RelayedEvent) -> None:
        found = self._inboxes.get(relayed.generation_id)
        if found is None:
            return  # cancelled, and this was on its way
        _, inbox = found
        if relayed.WhichOneof("kind") == "failure":
            del self._inboxes[relayed.generation_id]
            inbox.fail(refused(relayed.failure, self._peer))
            return
        event = event_from_proto(relayed.event)
        if event is not None:
            inbox.put(event)
        if isinstance(event, GenerationFinished):
            del self._inboxes[relayed.generation_id]
