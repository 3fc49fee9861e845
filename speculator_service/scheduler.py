"""The speculator's loop over all sequences: take what the verifiers said, one forward, hand out what was drafted.

`step` is the whole story. It runs on the engine thread; `attach`, `submit` and `detach` may be called from any thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from saguaro.core.forward_time import ForwardTime
from saguaro.core.rank_histogram import Allocation, OutcomeStatistics
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.runner import Runner
from saguaro.engine.watched_runner import forward_works
from saguaro.errors import Unavailable
from saguaro.types import NotSpeculatingReason, SpeculationEntries, SpeculatorFrame, VerifierFrame
from speculator_service.allocation import best_allocation
from speculator_service.batch import BatchPlanner, Work
from speculator_service.draft_rows import DraftRows
from speculator_service.harvest import Harvest, blame
from speculator_service.isolation import in_parts
from speculator_service.session import FanOut, Session
from speculator_service.stream import Draft, Limits, Stream

log = logging.getLogger(__name__)

_MAX_RANK = 64  # candidates beyond it are not worth the memory of their counts
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
        self._harvest = Harvest(
            DraftRows(runner.device, runner.vocab_size),
            max_lookahead=limits.max_lookahead,
            sessions=lambda: (session for stream in self._streams for session in stream.sessions.values()),
            fan_out_for=self._fan_out,
        )
        self._allocations: dict[tuple[Stream, int, int, int, int, int, int], Allocation] = {}  # of this step
        self._reap_at_ns = 0
        self._num_rows = 0  # of the last step of trees
        # For scrapes; the engine thread alone counts.
        self.num_forwards = self.num_rows = self.busy_ns = self.num_entries = 0
        self._num_stale_ended = self._num_faults_ended = self._num_diverged_ended = 0
        self.num_dropped_tokens = 0  # too large for a message with their law; the event loop alone counts
        self.rests_until_ns: int | None = None  # when a session that awaits its outcome goes on without

    # --- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, send: Callable[[SpeculatorFrame], None]) -> Stream:
        """A verifier's stream begins; `send` is called from the engine thread."""
        stream = Stream(send, self._draft, self._limits, self._new_statistics, lambda: self._has_room(stream))
        self._post(lambda: self._streams.append(stream))
        return stream

    def submit(self, stream: Stream, frame: VerifierFrame, on_taken: Callable[[], None] = lambda: None) -> None:
        """A frame came in on the stream; `on_taken` is called from the engine thread when it is taken."""
        arrived_ns = self._clock_ns()

        def take() -> None:
            on_taken()
            stream.take(frame, arrived_ns)

        self._post(take)

    def detach(self, stream: Stream) -> None:
        """The stream ended; its sequences end with it."""
        self._post(lambda: self._drop(stream))

    def _post(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        self._wake()

    def _has_room(self, stream: Stream) -> bool:
        """Whether the stream may open one more; where all places are taken, the stream with most of them gives one."""
        if self.num_sequences < self._limits.max_sequences:
            return True
        richest = max(self._streams, key=lambda item: len(item.sessions), default=stream)
        if len(richest.sessions) < len(stream.sessions) + 2:
            return False
        youngest = list(richest.sessions.values())[-1]
        richest.refuse(youngest.sequence_id, youngest.epoch, NotSpeculatingReason.OVERLOADED)
        return True

    @property
    def num_sequences(self) -> int:
        """Open sequences of all streams."""
        return sum(len(stream.sessions) for stream in self._streams)

    @property
    def num_streams(self) -> int:
        """Verifiers that are connected."""
        return len(self._streams)

    @property
    def num_faults(self) -> int:
        """Faults of our own that ended a sequence here, of all streams that ever were."""
        return self._num_faults_ended + sum(stream.num_faults for stream in self._streams)

    @property
    def num_diverged(self) -> int:
        """Sequences whose tokens were not the verifier's, of all streams that ever were."""
        return self._num_diverged_ended + sum(stream.num_diverged for stream in self._streams)

    @property
    def num_stale(self) -> int:
        """Messages of rounds that were over, of all streams that ever were."""
        return self._num_stale_ended + sum(stream.num_stale for stream in self._streams)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take the inbox, do one forward, send what is worth it. False if there was nothing to draft.

        Raises Unavailable where no forward succeeds, not even one that no sequence has part in.
        """
        self._take_inbox()
        self._reap_forgotten()
        self._allocations.clear()
        works = self._next_batch()
        if works:
            self._draft_together(works)
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
            self._num_faults_ended += stream.num_faults
            self._num_diverged_ended += stream.num_diverged

    def _reap_forgotten(self) -> None:
        now_ns = self._clock_ns()
        if now_ns >= self._reap_at_ns:
            self._reap_at_ns = now_ns + _REAP_EVERY_NS
            for stream in self._streams:
                stream.reap(now_ns)

    def _next_batch(self) -> list[Work]:
        due = self._due()
        self._harvest.rank_inherited(due, self._clock_ns())
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

    def _draft_together(self, works: Sequence[Work]) -> None:
        try:
            runner = self._runner
            in_parts(works, self._forward, blame, lambda failed: forward_works(runner, failed.chunk.write_slots[-1:]))
        except Exception as fault:
            raise Unavailable("the draft model's forwards fail on this machine") from fault

    def _forward(self, works: Sequence[Work]) -> None:
        """Raises what the forward raises, and then nothing has changed."""
        works = [work for work in works if work.stream.sessions.get(work.session.sequence_id) is work.session]
        if not works:
            return
        started_ns = self._clock_ns()
        for work in works:
            work.session.clock.take_up(started_ns)
        logits = self._runner.forward([work.chunk for work in works])
        self.num_forwards += 1
        self.num_rows += sum(len(work.chunk.token_ids) for work in works)
        self.busy_ns += self._clock_ns() - started_ns
        trees = [place for place, work in enumerate(works) if work.branches is not None]
        trunks = [place for place, work in enumerate(works) if work.branches is None]
        if trees:
            self._harvest.take_trees(works, logits, trees)
            if all(len(works[place].chunk.token_ids) == 1 for place in trunks):
                self._num_rows = len(logits.rows)
                self.forward_time.observe(self._num_rows, self._clock_ns() - started_ns)
        if trunks:
            self._harvest.take_trunks(works, logits, trunks)

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
        """A step met a fault that no sequence can be charged with, or the model does not work: all come again later."""
        self._take_inbox()  # who opened meanwhile need not wait for a word
        for stream in self._streams:
            stream.refuse_all(NotSpeculatingReason.OVERLOADED)
            self._send(stream)

    def _send(self, stream: Stream) -> None:
        now_ns = self._clock_ns()
        entries: list[SpeculationEntries] = []
        for session in list(stream.sessions.values()):
            try:
                item = session.entries_to_send(now_ns, self._step_ns())
            except Exception as fault:  # noqa: BLE001 - the other sequences go on
                stream.blame(session.sequence_id, session.epoch, fault)
                continue
            if item is not None:
                entries.append(item)
        self.num_entries += len(entries)
        if entries or stream.statuses or stream.owes_a_word(now_ns):
            statuses, stream.statuses, stream.said_ns = tuple(stream.statuses), [], now_ns
            stream.send(SpeculatorFrame(tuple(entries), statuses, self._runner.block_manager.num_free))
