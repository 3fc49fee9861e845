"""The speculator's loop over all sequences: take what the verifiers said, one forward, hand out what was drafted.

`step` is the whole story. It runs on the engine thread; `attach`, `submit` and `detach` may be called from any thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import torch

from saguaro.core.forward_time import ForwardTime
from saguaro.core.rank_histogram import Allocation, OutcomeStatistics
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.model_runner import Logits
from saguaro.engine.runner import Runner
from saguaro.types import NotSpeculatingReason, SpeculationEntries, SpeculatorFrame, VerifierFrame
from speculator_service.allocation import best_allocation
from speculator_service.batch import BatchPlanner, Work
from speculator_service.draft_rows import Ask, DraftRows, Growing
from speculator_service.rows import row_positions
from speculator_service.session import FanOut, Session
from speculator_service.stream import Draft, Limits, Stream

_MAX_RANK = 64  # candidates beyond it are not worth the memory of their counts
_MOST_KEPT_BYTES = 256 << 20  # logits of all trees that may be kept for who inherits them
_REAP_EVERY_NS = 500_000_000


class DraftScheduler:
    """Drafts for all sequences of all streams in one ragged batch a step."""

    def __init__(
        self,
        runner: Runner,
        limits: Limits,
        *,
        acceptance_prior: float,
        miss_exponent: float,
        compiler: ConstraintCompiler | None = None,
        wake: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._runner = runner
        self.blocks = runner.block_manager
        self._limits = limits
        blocks = runner.block_manager
        context_limit = min(runner.context_limit, blocks.num_blocks * blocks.block_size)
        self._draft = Draft(blocks, runner.vocab_size, context_limit, runner.copy_kv, compiler)
        self._new_statistics = lambda: OutcomeStatistics(
            max_lookahead=limits.max_lookahead,
            max_rank=min(limits.max_budget, _MAX_RANK),
            acceptance_prior=acceptance_prior,
            miss_exponent=miss_exponent,
        )
        self._planner = BatchPlanner(runner, limits)
        self._wake = wake
        self._clock_ns = clock_ns
        self._streams: list[Stream] = []
        self._inbox: deque[Callable[[], None]] = deque()
        self.forward_time = ForwardTime()
        self._draft_rows = DraftRows(runner.device, runner.vocab_size)
        self._allocations: dict[tuple[Stream, int, int, int, int, int, int], Allocation] = {}  # of this step
        self._reap_at_ns = 0
        self._num_rows = 0  # of the last step of trees
        # For scrapes; the engine thread alone counts.
        self.num_forwards = self.num_rows = self.busy_ns = self.num_entries = self._num_stale_ended = 0
        self.rests_until_ns: int | None = None  # when a session that awaits its outcome goes on without

    # --- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, send: Callable[[SpeculatorFrame], None]) -> Stream:
        """A verifier's stream begins; `send` is called from the engine thread."""
        stream = Stream(
            send,
            self._draft,
            self._limits,
            self._new_statistics,
            has_room=lambda: self.num_sequences < self._limits.max_sequences,
        )
        self._post(lambda: self._streams.append(stream))
        return stream

    def submit(self, stream: Stream, frame: VerifierFrame) -> None:
        """A frame came in on the stream."""
        arrived_ns = self._clock_ns()
        self._post(lambda: stream.take(frame, arrived_ns))

    def detach(self, stream: Stream) -> None:
        """The stream ended; its sequences end with it."""
        self._post(lambda: self._drop(stream))

    def _post(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        self._wake()

    @property
    def num_sequences(self) -> int:
        """Open sequences of all streams."""
        return sum(len(stream.sessions) for stream in self._streams)

    @property
    def num_streams(self) -> int:
        """Verifiers that are connected."""
        return len(self._streams)

    @property
    def num_stale(self) -> int:
        """Messages of rounds that were over, of all streams that ever were."""
        return self._num_stale_ended + sum(stream.num_stale for stream in self._streams)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take the inbox, do one forward, send what is worth it. False if there was nothing to draft."""
        self._take_inbox()
        self._reap_forgotten()
        self._allocations.clear()
        works = self._next_batch()
        if works:
            self._forward(works)
            self._take_inbox()  # an outcome that came meanwhile: what was drafted for its round need not be sent
        for stream in self._streams:
            self._send(stream)
        return bool(works)

    def _take_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _drop(self, stream: Stream) -> None:
        stream.end_all()
        if stream in self._streams:
            self._streams.remove(stream)
            self._num_stale_ended += stream.num_stale

    def _reap_forgotten(self) -> None:
        now_ns = self._clock_ns()
        if now_ns >= self._reap_at_ns:
            self._reap_at_ns = now_ns + _REAP_EVERY_NS
            for stream in self._streams:
                stream.reap(now_ns)

    def _next_batch(self) -> list[Work]:
        due = self._due()
        self._rank_inherited(due)
        return self._planner.next_batch(due)

    def _step_ns(self) -> int:
        """What the next step of trees should take."""
        return int(self.forward_time.expect_ns(self._num_rows))

    def _due(self) -> list[tuple[Stream, Session]]:
        """Sessions with work that do not await their outcome."""
        now_ns = self._clock_ns()
        due = []
        self.rests_until_ns = None
        for stream in self._streams:
            for session in stream.sessions.values():
                if not session.has_work:
                    continue
                held_until_ns = session.held_until_ns(now_ns, self._step_ns())
                if held_until_ns <= now_ns:
                    due.append((stream, session))
                elif self.rests_until_ns is None or held_until_ns < self.rests_until_ns:
                    self.rests_until_ns = held_until_ns
        return due

    def _rank_inherited(self, due: list[tuple[Stream, Session]]) -> None:
        """Outcomes that were foretold: the logits of their branches say already what may come next."""
        heirs = [item for item in due if item[1].can_guess]
        if not heirs:
            return
        now_ns = self._clock_ns()
        asks = [Ask(stream, session, _inherited_positions(session)) for stream, session in heirs]
        rows = [session.inherited for _, session in heirs if session.inherited is not None]
        for ask, ranked in zip(asks, self._draft_rows.rank(asks, rows), strict=True):
            ask.session.clock.take_up(now_ns)
            ask.session.take_inherited(ranked, self._fan_out(ask.stream, ask.session, len(due)))

    def _forward(self, works: list[Work]) -> None:
        started_ns = self._clock_ns()
        for work in works:
            work.session.clock.take_up(started_ns)
        logits = self._runner.forward([work.chunk for work in works])
        self.num_forwards += 1
        self.num_rows += sum(len(work.chunk.token_ids) for work in works)
        self.busy_ns += self._clock_ns() - started_ns
        trees, growing = [], []
        for index, work in enumerate(works):
            if work.branches is not None:
                trees.append(index)
                growing.append(Growing(work.stream, work.session, work.chunk, work.branches))
        trunks = [index for index, work in enumerate(works) if work.branches is None]
        if trees:
            self._take_trees(growing, _rows_of(logits, trees))
            if all(len(works[index].chunk.token_ids) == 1 for index in trunks):
                self._num_rows = len(logits.rows)
                self.forward_time.observe(self._num_rows, self._clock_ns() - started_ns)
        if trunks:
            self._take_trunks([works[index] for index in trunks], _rows_of(logits, trunks))

    def _take_trees(self, trees: list[Growing], logits: torch.Tensor) -> None:
        sessions = (session for stream in self._streams for session in stream.sessions.values())
        left = _MOST_KEPT_BYTES - sum(session.kept_bytes for session in sessions)
        is_kept = logits.nbytes * self._limits.max_lookahead <= _MOST_KEPT_BYTES and logits.nbytes <= left
        start = 0
        for tree, following in zip(trees, self._draft_rows.grow(trees, logits), strict=True):
            end = start + tree.chunk.num_logits
            tree.branches.take(following, logits[start:end].clone() if is_kept else None)
            start = end

    def _take_trunks(self, works: list[Work], logits: torch.Tensor) -> None:
        asks = [Ask(work.stream, work.session, row_positions(work.chunk)) for work in works]
        for work, ranked in zip(works, self._draft_rows.rank(asks, [logits]), strict=True):
            work.session.take_trunk(work.chunk, ranked, self._fan_out(work.stream, work.session, len(works)))

    def _fan_out(self, stream: Stream, session: Session, batch: int) -> FanOut:
        statistics = stream.statistics_for(session)

        def fan_out(length: int) -> tuple[int, ...]:
            # Sequences of one commit differ by microseconds in what they have left: they share the search.
            budget = self._planner.most_branches(session.trunk_length, session.lookahead, stream.budget)
            key = stream, id(statistics), length, session.lookahead, batch, session.clock.deadline_ns, budget
            if key not in self._allocations:
                self._allocations[key] = best_allocation(
                    statistics,
                    self.forward_time,
                    length=length,
                    budget=budget,
                    lookahead=session.lookahead,
                    batch=batch,
                    left_ns=max(session.clock.deadline_ns - self._clock_ns(), 0),
                )
            allocation = self._allocations[key]
            stream.prepared = sum(allocation.fan_out)
            return allocation.fan_out

        return fan_out

    def refuse_all(self) -> None:
        """A step met a fault of our own: every open sequence is quarantined, since any may be the cause."""
        for stream in self._streams:
            stream.refuse_all(NotSpeculatingReason.MALFORMED)

    def _send(self, stream: Stream) -> None:
        now_ns = self._clock_ns()
        entries: list[SpeculationEntries] = []
        for session in stream.sessions.values():
            item = session.entries_to_send(now_ns, self._step_ns())
            if item is not None:
                entries.append(item)
        self.num_entries += len(entries)
        if entries or stream.statuses:
            statuses, stream.statuses = tuple(stream.statuses), []
            stream.send(SpeculatorFrame(tuple(entries), statuses, self._runner.block_manager.num_free))


def _inherited_positions(session: Session) -> list[int]:
    """Absolute position that each inherited row predicts."""
    count = 0 if session.inherited is None else len(session.inherited)
    return list(range(len(session.prefix), len(session.prefix) + count))


def _rows_of(logits: Logits, chunks: list[int]) -> torch.Tensor:
    """The logits rows of these chunks, in order; no copy where they are all."""
    if len(chunks) == len(logits.offsets):
        return logits.rows
    return torch.cat([logits.of(index) for index in chunks])
