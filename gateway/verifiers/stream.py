"""One call of a relay: commands out, events of many generations in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gateway.verifiers.away import VerifierAway, VerifierFault, broken, refused
from gateway.verifiers.inbox import Inbox
from saguaro.errors import InvalidRequest, SaguaroError, Unavailable
from saguaro.types import GenerationEvent, GenerationFinished, GenerationRequest, PromptLogprobs, TokenLogprobs
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.message_limit import said_limit
from saguaro.wire.verifier import event_from_proto, generation_request_to_proto, resume_request_to_proto

logger = logging.getLogger(__name__)

_MOST_WAITING_BYTES = 1 << 28  # for a verifier that does not read
_SMALL_BYTES = 16  # of a command that begins nothing


@dataclass(slots=True)
class _Running:
    """A generation on a stream. Logprobs of its prompt may come in parts; a part is nothing to its reader."""

    request_id: str
    inbox: Inbox
    num_logprobs: int  # of the whole prompt
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    def put(self, event: GenerationEvent) -> None:
        """The next event."""
        if isinstance(event, PromptLogprobs):
            self.logprobs += event.logprobs
            if len(self.logprobs) < self.num_logprobs:
                return
            event, self.logprobs = PromptLogprobs(tuple(self.logprobs)), []
        elif self.logprobs:  # fewer than the prompt has tokens
            self.inbox.put(PromptLogprobs(tuple(self.logprobs)))
            self.logprobs = []
        self.inbox.put(event)


class Stream:
    """One call. A generation is on it from `begin` until its last event has come, or it is cancelled."""

    def __init__(self, stub: Any, peer: str, taken_bytes: int) -> None:
        self._peer = peer
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._commands: asyncio.Queue[tuple[int, pb.RelayRequest]] = asyncio.Queue()  # with their bytes
        self._num_waiting_bytes = 0
        self.has_ended = False
        self._call = stub.Relay(self._requests(), metadata=said_limit(taken_bytes))
        self._reading = asyncio.create_task(self._read())

    def begin(self, request: GenerationRequest, inbox: Inbox, most_bytes: int) -> int:
        """Its number; its events go to the inbox. Raises InvalidRequest for one that is too large to be sent, and
        VerifierAway where the verifier does not take what it was sent before.
        """
        if self._num_waiting_bytes > _MOST_WAITING_BYTES:
            raise VerifierAway(Unavailable(f"{self._peer} does not take what it is sent"), is_refusal=True)
        number = next(self._numbers)
        command = pb.RelayRequest(generation_id=number)
        if request.resumption is None:
            command.generate.CopyFrom(generation_request_to_proto(request))
        else:
            command.resume.CopyFrom(resume_request_to_proto(request, request.resumption))
        num_bytes = command.ByteSize()
        if num_bytes > most_bytes:
            raise InvalidRequest(
                "",
                f"the request has {num_bytes} bytes on its way to the verifier; a message takes {most_bytes} "
                "(--max-message-bytes); a shorter prompt or grammar fits",
            )
        self._running[number] = _Running(request.request_id, inbox, len(request.prompt) - 1)
        self._send(command, num_bytes)
        return number

    def _send(self, command: pb.RelayRequest, num_bytes: int = _SMALL_BYTES) -> None:
        self._num_waiting_bytes += num_bytes
        self._commands.put_nowait((num_bytes, command))

    def stop(self, request_id: str) -> None:
        """See `Relay.stop`."""
        for number, running in self._running.items():
            if running.request_id == request_id:
                self._send(pb.RelayRequest(generation_id=number, stop=pb.StopGeneration()))

    def cancel(self, number: int) -> None:
        """Nobody reads the inbox any more."""
        if self._running.pop(number, None) is not None:
            self._send_cancel(number)

    def _send_cancel(self, number: int) -> None:
        self._send(pb.RelayRequest(generation_id=number, cancel=pb.CancelGeneration()))

    def abandon(self, reason: SaguaroError) -> None:
        """End the call; `reason` is what its generations hear."""
        self._end(reason)
        self._reading.cancel()

    async def close(self) -> None:
        """End the call."""
        self.abandon(VerifierAway(Unavailable(f"{self._peer} is not used any more"), is_refusal=False))
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _requests(self) -> AsyncIterator[pb.RelayRequest]:
        while True:
            num_bytes, command = await self._commands.get()
            self._num_waiting_bytes -= num_bytes
            yield command

    async def _read(self) -> None:
        # Where the verifier ends the stream with generations on it, it has drained.
        reason: SaguaroError = VerifierAway(Unavailable(f"{self._peer} has ended its stream"), is_refusal=True)
        try:
            async for message in self._call:
                for event in message.events:
                    self._take(event)
        except Exception as error:  # whatever it is, those on the stream must hear of it
            reason = broken(error, self._peer)
            if isinstance(reason, VerifierFault):
                logger.error("%s; %d generations were on it", reason, len(self._running), exc_info=error)
        finally:
            self._end(reason)

    def _end(self, reason: SaguaroError) -> None:
        self.has_ended = True
        with contextlib.suppress(Exception):
            self._call.cancel()  # also ends the task that sends commands
        for running in self._running.values():
            running.inbox.fail(reason)
        self._running.clear()

    def _take(self, relayed: pb.RelayedEvent) -> None:
        number = relayed.generation_id
        running = self._running.get(number)
        if running is None:
            return  # cancelled, and this was on its way
        try:
            if relayed.WhichOneof("kind") == "failure":
                del self._running[number]
                running.inbox.fail(refused(relayed.failure, self._peer))
                return
            event = event_from_proto(relayed.event)
        except Exception as error:  # what cannot be read concerns one generation alone
            logger.error("request %s: %s sent what cannot be read", running.request_id, self._peer, exc_info=error)
            self._running.pop(number, None)
            self._send_cancel(number)
            running.inbox.fail(VerifierFault(f"{self._peer} sent what this gateway cannot read: {error}"))
            return
        if event is not None:
            running.put(event)
        if isinstance(event, GenerationFinished):
            del self._running[number]
