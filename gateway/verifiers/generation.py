"""One generation, whatever happens to its verifiers: where one is lost, another one goes on.

In coupled mode, and at temperature 0, the tokens are those that the lost verifier would have sent; in rejection mode
they follow the same law, given the tokens that came before. Tokens count once they are here: what was on its way from
the lost verifier is made again.

A verifier that fails at it by a fault is one thing, a generation at which verifiers fail another: after two of them it
has failed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator

from gateway.verifiers.away import VerifierAway, VerifierFault
from gateway.verifiers.member import Member
from gateway.verifiers.pool import VerifierPool
from gateway.verifiers.progress import Progress
from saguaro.errors import Unavailable
from saguaro.types import (
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    ModelIdentity,
    TokenRun,
)

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2  # before verifiers are asked again that all refused
_MOST_FAULTS = 2  # attempts that verifiers may fail at
_MOST_LOSSES = 3  # verifiers that may be lost, one after the other, before a token comes


class Generation:
    """Begin it with `events`; `stop` ends it early with its last event.

    A generation that no verifier has admitted yet is refused as soon as no verifier takes it: its caller can try
    again. One that was admitted, or `must_start` since its caller has seen other choices of the same request, waits for
    up to `patience_seconds` from its last token on for a verifier that comes back.
    """

    def __init__(
        self,
        pool: VerifierPool,
        request: GenerationRequest,
        model: ModelIdentity,
        *,
        patience_seconds: float,
        must_start: bool = False,
    ) -> None:
        self._pool = pool
        self._asked = request  # of the verifier that has it now
        self._progress = Progress(request)
        self._patience_seconds = patience_seconds
        self._model = model
        self._prompt = request.prompt
        self._is_started = False
        self._must_start = must_start
        self._is_stopped = False
        self._member: Member | None = None
        self._is_taken = False  # by the verifier that has it now
        self._lost_at: float | None = None  # since when nothing has come
        self._refused_by: set[Member] = set()
        self._failed_by: set[Member] = set()
        self._suspect: Member | None = None  # who failed, until it is known whether another does better
        self._num_faults = self._num_losses = 0
        self._is_alone = False  # on a stream of its own, once one has broken

    async def events(self, timeout_seconds: float) -> AsyncGenerator[GenerationEvent]:
        """Started once, then what follows, without a seam. Closing the iterator early aborts the generation.

        Raises Unavailable where no verifier takes it or goes on with it in time, VerifierFault where they fail at it.
        """
        deadline = time.monotonic() + timeout_seconds
        nobody = Unavailable(self._pool.complaints or f"no verifier serves {self._model.name} any more")
        member = await self._find(nobody, time.monotonic(), deadline)
        while True:
            try:
                async with contextlib.aclosing(self._events_of(member, deadline - time.monotonic())) as events:
                    async for event in events:
                        yield event
                return
            except (VerifierAway, VerifierFault) as lost:
                if self._is_stopped:
                    yield self._progress.stopped(str(lost))
                    return
                why = self._note(lost, member)
                self._lost_at = self._lost_at or time.monotonic()
                member = await self._find(why, self._lost_at, deadline)
                self._asked = self._progress.resume()
                logger.warning(
                    "request %s: %s; it goes on at %s after %d tokens",
                    *(self._asked.request_id, lost, member.address, len(self._progress.token_ids)),
                )

    def stop(self) -> None:
        """Tell the verifier that its caller has all it wants: Finished comes next, from there or from here."""
        self._is_stopped = True
        if self._member is not None:
            self._member.client.stop(self._asked.request_id)

    async def _events_of(self, member: Member, timeout_seconds: float) -> AsyncGenerator[GenerationEvent]:
        """What comes from this verifier, up to Finished. Runs that have come by the time that they are read are one."""
        self._member = member
        self._pool.served(self._tokens, member)
        self._is_taken = False
        with member.counted() as visit:
            generating = member.client.generate(self._asked, max(timeout_seconds, 0.0), is_alone=self._is_alone)
            async with contextlib.aclosing(generating) as batches:
                async for batch in batches:
                    visit.came(batch)
                    self._is_taken = True
                    for event in batch:
                        self._progress.take(event)
                    for event in joined(batch):
                        passed_on = self._passed_on(event, member)
                        if passed_on is not None:
                            yield passed_on

    def _passed_on(self, event: GenerationEvent, member: Member) -> GenerationEvent | None:
        """What the caller gets of it."""
        match event:
            case GenerationStarted() if self._is_started:
                return None  # the caller has seen one
            case GenerationStarted():
                self._is_started = True
            case TokenRun():
                self._lost_at, self._num_losses = None, 0
                self._refused_by.clear()
                self._convict()
            case GenerationFinished():
                self._convict()
                member.conduct.succeeded()
                self._pool.served(self._tokens, member)
                return self._progress.whole(event)
        return event

    def _note(self, lost: VerifierAway | VerifierFault, member: Member) -> Unavailable:
        """`member` is lost to it: what to say where no other one is found. Raises `lost` where none is to be tried."""
        if isinstance(lost, VerifierAway):
            self._refused_by.add(member)
            if not lost.is_refusal:
                member.eject(str(lost))
                self._num_losses += self._is_taken
                if self._num_losses >= _MOST_LOSSES:  # it may be what they are lost by
                    raise Unavailable(f"{lost}; {self._num_losses} verifiers were lost before a token came")
            return lost
        self._num_faults += 1
        self._failed_by.add(member)
        if self._is_alone or not lost.is_of_all:  # else it may be the fault of another one
            member.conduct.failed(self._asked.request_id)
            if self._num_faults >= _MOST_FAULTS or self._choose() in (None, member):
                raise lost
            self._suspect = member
        self._is_alone = self._is_alone or lost.is_of_all
        return Unavailable(str(lost))

    def _convict(self) -> None:
        """It goes on."""
        if self._suspect is not None:
            self._suspect.conduct.convict(self._asked.request_id)
            self._suspect = None

    def _choose(self) -> Member | None:
        """Where one failed at it, another one if there is any."""
        without = self._refused_by | self._failed_by
        is_careful = bool(self._failed_by)
        member = self._pool.choose(self._tokens, self._model, without=without, is_careful=is_careful)
        if member is None and is_careful:
            return self._pool.choose(self._tokens, self._model, without=self._refused_by)
        return member

    async def _find(self, why: Unavailable, since: float, deadline: float) -> Member:
        """The verifier to begin or go on at. Raises Unavailable, `why` in its words, where none comes in time."""
        give_up_at = min(since + self._patience_seconds, deadline)
        while (member := self._choose()) is None:
            if not (self._is_started or self._must_start):
                raise why
            if time.monotonic() >= give_up_at:
                raise Unavailable(
                    f"{why}; no verifier went on within {self._patience_seconds:g} s", why.retry_after_seconds
                )
            await asyncio.sleep(_PAUSE_SECONDS)
            self._refused_by.clear()
            if not self._pool.usable:
                await self._pool.wait_for_change(give_up_at - time.monotonic())
        return member

    @property
    def _tokens(self) -> tuple[int, ...]:
        return (*self._prompt, *self._progress.token_ids)


def joined(events: list[GenerationEvent]) -> list[GenerationEvent]:
    """The same with neighbouring runs as one: under load a reader that falls behind catches up at less cost.

    A joined run has no report; whoever wants those takes the events as they came.
    """
    if len(events) == 1:
        return events
    found: list[GenerationEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, TokenRun) and isinstance(last, TokenRun):
            found[-1] = TokenRun(
                last.token_ids + event.token_ids, last.provenance + event.provenance, last.logprobs + event.logprobs
            )
        else:
            found.append(event)
    return found
