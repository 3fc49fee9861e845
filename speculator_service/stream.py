"""One verifier worker's stream: its open sequences, its wishes, what was learnt about guessing for it.

Everything that arrives is judged here. A message that is stale is dropped and counted; one that breaks the contract
quarantines its sequence and no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saguaro.core.rank_histogram import OutcomeStatistics
from saguaro.engine.block_manager import BlockManager, BlockTable
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.errors import InvalidRequest
from saguaro.types import (
    CloseSequence,
    CommitRound,
    NotSpeculatingReason,
    OpenSequence,
    SequenceStatus,
    SpeculatorFrame,
    VerifierFrame,
)
from speculator_service.admission import check_commit, check_open
from speculator_service.closed_epochs import ClosedEpochs
from speculator_service.commits import Diverged, StaleCommit, UnknownRound
from speculator_service.draft_constraint import DraftConstraint
from speculator_service.session import CopyKV, Session

log = logging.getLogger(__name__)

_SILENT_LEASES = 10
_HEARTBEAT_NS = 250_000_000  # a quarter of the silence after which a verifier takes a speculator for stalled
_MOST_ALLOWED_NS = 3_600_000_000_000  # no verification takes longer
_POISON_FAULTS = 3  # of one sequence: whatever it is, it is not passing
_MOST_BLAMED = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one speculator takes on."""

    max_sequences: int
    max_lookahead: int
    max_budget: int
    prefill_chunk_tokens: int
    lease_seconds: float
    max_forward_bytes: int = 1 << 30  # attention masks and logits of one forward


@dataclass(frozen=True, slots=True)
class Draft:
    """What sessions need of the draft model."""

    blocks: BlockManager
    vocab_size: int
    context_limit: int
    copy_kv: CopyKV
    compiler: ConstraintCompiler | None  # None drafts as if sequences had no constraints


class Stream:
    """Not thread-safe: the scheduler's thread owns it. `has_room` says whether it may open one more sequence."""

    def __init__(
        self,
        send: Callable[[SpeculatorFrame], None],
        draft: Draft,
        limits: Limits,
        new_statistics: Callable[[], OutcomeStatistics],
        has_room: Callable[[], bool],
    ) -> None:
        self.send = send
        self.budget = 0
        self.prepared = 0  # outcomes of the last round, of the budget what was worth its time
        self._cached_scale = 1.0
        self.sessions: dict[int, Session] = {}
        self.statuses: list[SequenceStatus] = []
        self.num_stale = self.num_faults = self.num_diverged = 0
        self.said_ns = 0  # when a frame last went to the verifier
        self._faults: dict[int, int] = {}  # by sequence, the latest last
        self._heard_ns = 0
        self._closed = ClosedEpochs()
        self._draft = draft
        self._limits = limits
        self._has_room = has_room
        # Rounds that verified a speculation from the cache, and others: guesses are worth different things after them.
        self._after_hit, self._after_miss = new_statistics(), new_statistics()

    def statistics_for(self, session: Session) -> OutcomeStatistics:
        """What was learnt from rounds like the one that the session guesses now."""
        return self._after_hit if session.was_hit else self._after_miss

    def scale_for(self, session: Session) -> float:
        """C of Saguaro sampling."""
        own = session.sampling.cached_scale
        return self._cached_scale if own is None else own

    def fan_out_at(self, session: Session, place: int) -> int:
        """F of Saguaro sampling: outcomes that will be prepared for a rejection at that place of what is drafted now.

        As they are allocated by what is known today. That changes no law but the draft's own, which is told.
        """
        if session.just_in_time:
            return self._after_miss.allocation(session.just_in_time, self.prepared).fan_out[place]
        return self._after_hit.allocation(session.lookahead, self.prepared).fan_out[place]

    def take(self, frame: VerifierFrame, arrived_ns: int) -> None:
        """A frame came in. What one of its sequences meets stays that sequence's own."""
        lookahead = min(frame.lookahead, self._limits.max_lookahead)
        allowed_ns = min(frame.soft_deadline_ns, _MOST_ALLOWED_NS)
        self.budget = min(frame.budget, self._limits.max_budget)
        # Another C than these is none; 1 does no harm.
        self._cached_scale = frame.cached_scale if 0 <= frame.cached_scale <= 1 else 1.0
        self._heard_ns = arrived_ns
        for closed in frame.closes:
            self._close(closed)
        for opened in frame.opens:
            with self.charged(opened.sequence_id, opened.epoch):
                self._open(opened, lookahead, arrived_ns, allowed_ns)
        for commit in frame.commits:
            with self.charged(commit.sequence_id, commit.epoch):
                self._commit(commit, lookahead, arrived_ns, allowed_ns)

    @contextmanager
    def charged(self, sequence_id: int, epoch: int) -> Iterator[None]:
        """What the block raises ends this sequence, and no other: for its life only where it broke the contract."""
        try:
            yield
        except InvalidRequest as error:
            log.warning("sequence %d is quarantined: %s", sequence_id, error)
            self.refuse(sequence_id, epoch, NotSpeculatingReason.MALFORMED)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the other sequences go on
            self.blame(sequence_id, epoch, fault)

    def blame(self, sequence_id: int, epoch: int, fault: Exception) -> None:
        """A fault of our own on this sequence. It may come again, unless it always brings one."""
        count = self._faults.pop(sequence_id, 0) + 1
        self._faults[sequence_id] = count
        if len(self._faults) > _MOST_BLAMED:
            del self._faults[next(iter(self._faults))]
        self.num_faults += 1
        log.error("a fault on sequence %d, its number %d", sequence_id, count, exc_info=fault)
        is_poison = count >= _POISON_FAULTS
        reason = NotSpeculatingReason.MALFORMED if is_poison else NotSpeculatingReason.OVERLOADED
        self.refuse(sequence_id, epoch, reason)

    def _close(self, closed: CloseSequence) -> None:
        """An epoch is over, and what the verifier opened before it: an open that comes after its close is stale."""
        self._closed.add(closed.sequence_id, closed.epoch)
        session = self.sessions.get(closed.sequence_id)
        if session is not None and session.epoch <= closed.epoch:
            self.end(closed.sequence_id)

    def _open(self, opened: OpenSequence, lookahead: int, arrived_ns: int, time_allowed_ns: int) -> None:
        known = self.sessions.get(opened.sequence_id)
        is_known = known is not None and known.epoch >= opened.epoch
        if is_known or self._closed.has(opened.sequence_id, opened.epoch):
            self.num_stale += 1
            return
        self.end(opened.sequence_id)
        check_open(opened, self._draft.vocab_size)
        if len(opened.token_ids) >= self._draft.context_limit:
            self.refuse(opened.sequence_id, opened.epoch, NotSpeculatingReason.CONTEXT_LIMIT)
        elif not self._has_room():
            self.refuse(opened.sequence_id, opened.epoch, NotSpeculatingReason.OVERLOADED)
        else:
            session = Session(
                opened,
                BlockTable(self._draft.blocks),
                lookahead=lookahead,
                context_limit=self._draft.context_limit,
                vocab_size=self._draft.vocab_size,
                copy_kv=self._draft.copy_kv,
                now_ns=arrived_ns,
                constraint=DraftConstraint.of(opened, self._draft.compiler),
            )
            session.clock.allow(arrived_ns, time_allowed_ns)
            self.sessions[opened.sequence_id] = session

    def _commit(self, commit: CommitRound, lookahead: int, arrived_ns: int, time_allowed_ns: int) -> None:
        session = self.sessions.get(commit.sequence_id)
        if self._closed.has(commit.sequence_id, commit.epoch):
            self.num_stale += 1
            return
        if session is None or session.epoch < commit.epoch:
            self.refuse(commit.sequence_id, commit.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
            return
        if session.epoch > commit.epoch:
            self.num_stale += 1
            return
        check_commit(commit, self._draft.vocab_size)
        self._learn(session, commit)
        try:
            session.commit(commit, lookahead, arrived_ns)
        except StaleCommit:
            self.num_stale += 1
        except UnknownRound:
            self.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
        except Diverged:
            self.num_diverged += 1
            log.warning("sequence %d diverged in round %d; it is to be opened anew", session.sequence_id, commit.round)
            self.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
        else:
            session.clock.allow(arrived_ns, time_allowed_ns)
            if session.room < 1:
                self.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.CONTEXT_LIMIT)

    def owes_a_word(self, now_ns: int) -> bool:
        """Whether the verifier hears nothing of this side though it lives: nothing came of its frames, or not yet."""
        if self._heard_ns <= self.said_ns:
            return False
        return now_ns - self.said_ns > _HEARTBEAT_NS or not any(item.has_work for item in self.sessions.values())

    def _learn(self, session: Session, commit: CommitRound) -> None:
        """The round that ended tells how good its guesses were, if any were wanted and it got as far."""
        if self.budget and commit.round == session.round and session.has_ranked(commit.outcome):
            self.statistics_for(session).observe(
                commit.outcome.num_accepted, len(session.speculation), session.rank_of_bonus(commit.outcome)
            )

    def refuse(self, sequence_id: int, epoch: int, reason: NotSpeculatingReason) -> None:
        """Give the sequence no speculations under this epoch, and say so."""
        self.end(sequence_id)
        self.statuses.append(SequenceStatus(sequence_id, epoch, reason))

    def refuse_all(self, reason: NotSpeculatingReason) -> None:
        """Give up every open sequence."""
        for session in list(self.sessions.values()):
            self.refuse(session.sequence_id, session.epoch, reason)

    def end(self, sequence_id: int) -> None:
        """Forget the sequence and free its blocks. Unknown ones are fine."""
        session = self.sessions.pop(sequence_id, None)
        if session is not None:
            session.table.free()

    def end_all(self) -> None:
        """The stream ended."""
        for sequence_id in list(self.sessions):
            self.end(sequence_id)

    def reap(self, now_ns: int) -> None:
        """Give up sequences that the verifier forgot: of which it has not spoken for a lease while it spoke of others.

        One that is silent may be in a long forward and has ten leases. Where it did not forget, it opens anew.
        """
        lease_ns = int(self._limits.lease_seconds * 1e9)
        oldest_ns = max(self._heard_ns - lease_ns, now_ns - _SILENT_LEASES * lease_ns)
        for session in [item for item in self.sessions.values() if item.clock.touched_ns < oldest_ns]:
            self.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
