"""The speculator's loop over all sequences: take what the verifiers said, one forward, hand out what was drafted.

`step` is the whole story. It runs on the engine thread; `submit` may be called from any thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from saguaro.core.fan_out import geometric_fan_out
from saguaro.core.sampling import RowSampling, race, ranked_candidates
from saguaro.engine.block_manager import BlockTable, OutOfBlocks
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import InvalidRequest
from saguaro.types import (
    CommitRound,
    NotSpeculatingReason,
    OpenSequence,
    SequenceStatus,
    SpeculationEntries,
    SpeculatorFrame,
    VerifierFrame,
)
from speculator_service.acceptance_estimate import AcceptanceEstimate
from speculator_service.session import Session, StaleCommit, UnknownRound

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one speculator takes on."""

    max_sequences: int
    max_lookahead: int
    max_budget: int
    prefill_chunk_tokens: int
    lease_seconds: float


@dataclass(slots=True)
class Stream:
    """One verifier worker's stream: its open sequences, its wishes, and the way back to it."""

    send: Callable[[SpeculatorFrame], None]
    lookahead: int = 0
    budget: int = 0
    acceptance: AcceptanceEstimate = field(default_factory=AcceptanceEstimate)
    sessions: dict[int, Session] = field(default_factory=dict)
    statuses: list[SequenceStatus] = field(default_factory=list)


class DraftScheduler:
    """Drafts for all sequences of all streams in one ragged batch a step."""

    def __init__(
        self,
        runner: ModelRunner,
        limits: Limits,
        *,
        acceptance_prior: float,
        miss_exponent: float,
        wake: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.num_stale = 0
        self._runner = runner
        self._limits = limits
        self._acceptance_prior = acceptance_prior
        self._miss_exponent = miss_exponent
        self._wake = wake
        self._clock_ns = clock_ns
        self._streams: list[Stream] = []
        self._inbox: deque[Callable[[], None]] = deque()
        self._step_ns = 0.0  # decayed mean of a tree step's time

    # --- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, send: Callable[[SpeculatorFrame], None]) -> Stream:
        """A verifier's stream begins; `send` is called from the engine thread."""
        stream = Stream(send, acceptance=AcceptanceEstimate(self._acceptance_prior))
        self._post(lambda: self._streams.append(stream))
        return stream

    def submit(self, stream: Stream, frame: VerifierFrame) -> None:
        """A frame came in on the stream."""
        arrived_ns = self._clock_ns()
        self._post(lambda: self._take_frame(stream, frame, arrived_ns))

    def detach(self, stream: Stream) -> None:
        """The stream ended; its sequences end with it."""
        self._post(lambda: self._drop_stream(stream))

    def _post(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        self._wake()

    @property
    def num_sequences(self) -> int:
        """Open sequences of all streams."""
        return sum(len(stream.sessions) for stream in self._streams)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take the inbox, do one forward, send what is worth it. False if there was nothing to draft."""
        self._take_inbox()
        due = self._chunks_of(self._due())
        if due:
            self._forward(due)
        for stream in self._streams:
            self._send(stream)
        return bool(due)

    def _take_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()
        self._reap_orphans()

    def _due(self) -> list[tuple[Stream, Session]]:
        """Sequences that a forward brings further. Where a verifier waits just in time, only those rows run."""
        due = [
            (stream, session)
            for stream in self._streams
            for session in stream.sessions.values()
            if session.has_work and stream.lookahead > 0
        ]
        return [item for item in due if item[1].just_in_time] or due

    def _chunks_of(self, due: list[tuple[Stream, Session]]) -> list[tuple[Stream, Session, Chunk]]:
        chunks = []
        for stream, session in due:
            try:
                chunks.append((stream, session, session.next_chunk(self._limits.prefill_chunk_tokens)))
            except OutOfBlocks:
                self._refuse(stream, session.sequence_id, session.epoch, NotSpeculatingReason.OVERLOADED)
        return chunks

    def _forward(self, due: list[tuple[Stream, Session, Chunk]]) -> None:
        started_ns = self._clock_ns()
        for _, session, _ in due:
            session.taken_ns = session.taken_ns or started_ns
        logits = self._runner.forward([chunk for _, _, chunk in due])
        trees = [item for item in zip(due, logits.offsets, strict=True) if item[0][1].in_tree]
        trunks = [item for item in zip(due, logits.offsets, strict=True) if not item[0][1].in_tree]
        self._take_trees(logits.rows, trees)
        self._take_trunks(logits.rows, trunks)
        if trees:
            took_ns = self._clock_ns() - started_ns
            self._step_ns += (took_ns - self._step_ns) * (0.2 if self._step_ns else 1.0)

    def _take_trees(self, logits: torch.Tensor, trees: list[tuple[tuple[Stream, Session, Chunk], slice]]) -> None:
        if not trees:
            return
        rows = torch.cat([logits[where] for _, where in trees])
        tokens = race(rows, self._sampling([item for item, _ in trees])).tolist()
        for (_, session, chunk), _ in trees:
            session.take_tree(tokens[: chunk.num_logits])
            del tokens[: chunk.num_logits]

    def _take_trunks(self, logits: torch.Tensor, trunks: list[tuple[tuple[Stream, Session, Chunk], slice]]) -> None:
        if not trunks:
            return
        rows = torch.cat([logits[where] for _, where in trunks])
        count = min(max(item[0].budget for item, _ in trunks) + 1, self._runner.vocab_size)
        ranked: list[list[int]] = []
        if rows.shape[0]:
            best = ranked_candidates(rows, self._sampling([item for item, _ in trunks]), count)
            ranked = [ids[:valid] for ids, valid in zip(best.token_ids.tolist(), best.num_valid.tolist(), strict=True)]
        for (stream, session, chunk), _ in trunks:
            session.take_trunk(chunk, ranked[: chunk.num_logits], self._fan_out_of(stream), stream.lookahead)
            del ranked[: chunk.num_logits]

    def _sampling(self, items: list[tuple[Stream, Session, Chunk]]) -> RowSampling:
        params = [session.sampling for _, session, chunk in items for _ in range(chunk.num_logits)]
        positions = [position for _, session, chunk in items for position in session.row_positions(chunk)]
        return RowSampling.build(params, positions, self._runner.device)

    def _fan_out_of(self, stream: Stream) -> Callable[[int], tuple[int, ...]]:
        return lambda length: geometric_fan_out(length, stream.budget, stream.acceptance.rate, self._miss_exponent)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _take_frame(self, stream: Stream, frame: VerifierFrame, arrived_ns: int) -> None:
        stream.lookahead = min(frame.lookahead, self._limits.max_lookahead)
        stream.budget = min(frame.budget, self._limits.max_budget)
        for closed in frame.closes:
            session = stream.sessions.get(closed.sequence_id)
            if session is not None and session.epoch == closed.epoch:
                self._end(stream, closed.sequence_id)
        for opened in frame.opens:
            self._open(stream, opened, arrived_ns + frame.soft_deadline_ns)
        for commit in frame.commits:
            self._commit(stream, commit, arrived_ns + frame.soft_deadline_ns)

    def _open(self, stream: Stream, opened: OpenSequence, deadline_ns: int) -> None:
        known = stream.sessions.get(opened.sequence_id)
        if known is not None and known.epoch >= opened.epoch:
            self.num_stale += 1
            return
        self._end(stream, opened.sequence_id)
        vocabulary = self._runner.vocab_size
        if not opened.token_ids or max(opened.token_ids) >= vocabulary:
            log.warning("sequence %d: %d tokens to open", opened.sequence_id, len(opened.token_ids))
            self._refuse(stream, opened.sequence_id, opened.epoch, NotSpeculatingReason.MALFORMED)
        elif self.num_sequences >= self._limits.max_sequences:
            self._refuse(stream, opened.sequence_id, opened.epoch, NotSpeculatingReason.OVERLOADED)
        else:
            session = Session(
                opened,
                BlockTable(self._runner.block_manager),
                context_limit=self._runner.context_limit,
                now_ns=self._clock_ns(),
            )
            session.deadline_ns = deadline_ns
            stream.sessions[opened.sequence_id] = session
            self._check_room(stream, session)

    def _commit(self, stream: Stream, commit: CommitRound, deadline_ns: int) -> None:
        session = stream.sessions.get(commit.sequence_id)
        if session is None or session.epoch < commit.epoch:
            self._refuse(stream, commit.sequence_id, commit.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
            return
        num_draft = len(session.speculation)
        is_new = commit.round == session.round
        try:
            if session.epoch > commit.epoch:
                raise StaleCommit
            if max((commit.outcome.bonus_token, *(commit.speculation or ()))) >= self._runner.vocab_size:
                raise InvalidRequest("token_ids", f"a token is outside the vocabulary of {self._runner.vocab_size}")
            session.commit(commit, self._clock_ns())
        except StaleCommit:
            self.num_stale += 1
        except UnknownRound:
            self._refuse(stream, session.sequence_id, session.epoch, NotSpeculatingReason.UNKNOWN_SEQUENCE)
        except InvalidRequest as error:
            log.warning("sequence %d is quarantined: %s", session.sequence_id, error)
            self._refuse(stream, session.sequence_id, session.epoch, NotSpeculatingReason.MALFORMED)
        else:
            session.deadline_ns = deadline_ns
            if is_new:
                stream.acceptance.observe(commit.outcome.num_accepted, num_draft)
            self._check_room(stream, session)

    def _check_room(self, stream: Stream, session: Session) -> None:
        if session.room(1) < 1:
            self._refuse(stream, session.sequence_id, session.epoch, NotSpeculatingReason.CONTEXT_LIMIT)

    def _refuse(self, stream: Stream, sequence_id: int, epoch: int, reason: NotSpeculatingReason) -> None:
        self._end(stream, sequence_id)
        stream.statuses.append(SequenceStatus(sequence_id, epoch, reason))

    def refuse_all(self) -> None:
        """A step met a fault of our own: every open sequence is quarantined, since any may be the cause."""
        for stream in self._streams:
            for session in list(stream.sessions.values()):
                self._refuse(stream, session.sequence_id, session.epoch, NotSpeculatingReason.MALFORMED)

    def _end(self, stream: Stream, sequence_id: int) -> None:
        session = stream.sessions.pop(sequence_id, None)
        if session is not None:
            session.table.free()

    def _drop_stream(self, stream: Stream) -> None:
        for sequence_id in list(stream.sessions):
            self._end(stream, sequence_id)
        if stream in self._streams:
            self._streams.remove(stream)

    def _reap_orphans(self) -> None:
        """Sequences whose verifier has not spoken of them for a lease are given up; it opens them again if it lives."""
        oldest_ns = self._clock_ns() - int(self._limits.lease_seconds * 1e9)
        for stream in self._streams:
            for session in [item for item in stream.sessions.values() if item.touched_ns < oldest_ns]:
                self._end(stream, session.sequence_id)

    def _send(self, stream: Stream) -> None:
        now_ns, step_ns = self._clock_ns(), int(self._step_ns)
        entries: list[SpeculationEntries] = []
        for session in stream.sessions.values():
            item = session.entries_to_send(now_ns, step_ns)
            if item is not None:
                entries.append(item)
        if entries or stream.statuses:
            statuses, stream.statuses = tuple(stream.statuses), []
            stream.send(SpeculatorFrame(tuple(entries), statuses, self._runner.block_manager.num_free))
