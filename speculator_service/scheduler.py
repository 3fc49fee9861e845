"""The speculator's loop over all sequences: take what the verifiers said, one forward, hand out what was drafted.

`step` is the whole story. It runs on the engine thread; `attach`, `submit` and `detach` may be called from any thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from saguaro.core.forward_time import ForwardTime
from saguaro.core.rank_histogram import OutcomeStatistics
from saguaro.core.sampling import RowSampling, race, ranked_candidates
from saguaro.engine.block_manager import OutOfBlocks
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner
from saguaro.types import NotSpeculatingReason, SamplingParams, SpeculationEntries, SpeculatorFrame, VerifierFrame
from speculator_service.session import Session
from speculator_service.stream import Draft, Limits, Stream

_MAX_RANK = 64  # candidates beyond it are not worth the memory of their counts
_LEAST_RANKED = 16  # ranking more costs little, and tells of what rank the bonus token has
_FREE_WIDTH = 1.1  # branches that lengthen a step by less than this cost nothing worth saving


@dataclass(frozen=True, slots=True)
class Work:
    """One session's part of a forward. `is_tree`: a step of its branches; otherwise trunk."""

    stream: Stream
    session: Session
    chunk: Chunk
    is_tree: bool


class DraftScheduler:
    """Drafts for all sequences of all streams in one ragged batch a step."""

    def __init__(
        self,
        runner: Runner,
        limits: Limits,
        *,
        acceptance_prior: float,
        miss_exponent: float,
        wake: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._draft = Draft(runner.block_manager, runner.vocab_size, runner.context_limit)
        self._new_statistics = lambda: OutcomeStatistics(
            max_lookahead=limits.max_lookahead,
            max_rank=min(limits.max_budget, _MAX_RANK),
            acceptance_prior=acceptance_prior,
            miss_exponent=miss_exponent,
        )
        self._wake = wake
        self._clock_ns = clock_ns
        self._streams: list[Stream] = []
        self._inbox: deque[Callable[[], None]] = deque()
        self._forward_time = ForwardTime()
        # Rows at temperature 0 need no parameters, whatever their number.
        self._greedy = RowSampling.build([SamplingParams()], [0], runner.device)
        self._step_ns = 0  # of the last step of trees alone
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

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take the inbox, do one forward, send what is worth it. False if there was nothing to draft."""
        self._take_inbox()
        self._reap_orphans()
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

    def _reap_orphans(self) -> None:
        oldest_ns = self._clock_ns() - int(self._limits.lease_seconds * 1e9)
        for stream in self._streams:
            stream.reap(oldest_ns)

    def _next_batch(self) -> list[Work]:
        """Sequences that a forward brings further. Where a verifier waits just in time, only those rows run."""
        now_ns = self._clock_ns()
        due = []
        self.rests_until_ns = None
        for stream in self._streams:
            for session in stream.sessions.values():
                if not session.has_work:
                    continue
                held_until_ns = session.held_until_ns(now_ns, self._step_ns)
                if held_until_ns <= now_ns:
                    due.append((stream, session))
                elif self.rests_until_ns is None or held_until_ns < self.rests_until_ns:
                    self.rests_until_ns = held_until_ns
        works = []
        for stream, session in [item for item in due if item[1].just_in_time] or due:
            is_tree = session.in_tree
            try:
                chunk = session.next_chunk(self._limits.prefill_chunk_tokens)
            except OutOfBlocks:
                stream.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.OVERLOADED)
            else:
                works.append(Work(stream, session, chunk, is_tree))
        return works

    def _forward(self, works: list[Work]) -> None:
        started_ns = self._clock_ns()
        for work in works:
            work.session.taken_ns = work.session.taken_ns or started_ns
        logits = self._runner.forward([work.chunk for work in works])
        trees = [index for index, work in enumerate(works) if work.is_tree]
        trunks = [index for index, work in enumerate(works) if not work.is_tree]
        if trees:
            self._take_trees([works[index] for index in trees], _rows_of(logits, trees))
            if not trunks:
                self._step_ns = self._clock_ns() - started_ns
                self._forward_time.observe(len(logits.rows), self._step_ns)
        if trunks:
            self._take_trunks([works[index] for index in trunks], _rows_of(logits, trunks), len(works))

    def _take_trees(self, works: list[Work], logits: torch.Tensor) -> None:
        tokens = race(logits, self._sampling(works)).tolist()
        for work in works:
            work.session.take_tree(tokens[: work.chunk.num_logits])
            del tokens[: work.chunk.num_logits]

    def _take_trunks(self, works: list[Work], logits: torch.Tensor, batch: int) -> None:
        ranked: list[list[int]] = []
        if logits.shape[0]:
            count = min(max(_most_candidates(work) for work in works), self._runner.vocab_size)
            best = ranked_candidates(logits, self._sampling(works), count)
            ranked = [ids[:valid] for ids, valid in zip(best.token_ids.tolist(), best.num_valid.tolist(), strict=True)]
        for work in works:
            budget = self._budget_in_time(work.stream, work.session, batch)
            statistics = work.stream.statistics_for(work.session)
            work.session.take_trunk(
                work.chunk,
                ranked[: work.chunk.num_logits],
                lambda length, s=statistics, b=budget: s.fan_out(length, b),  # type: ignore[misc]
            )
            del ranked[: work.chunk.num_logits]

    def _budget_in_time(self, stream: Stream, session: Session, batch: int) -> int:
        """Most outcomes, up to the stream's wish, whose branches are whole when the verification ends.

        Never so few that fewer would not be faster: width that costs nothing is taken.
        """
        left_ns = session.deadline_ns - self._clock_ns()
        narrow_ns = self._forward_time.expect_ns(batch)
        budget = stream.budget
        while budget > 1:
            step_ns = self._forward_time.expect_ns(batch * budget)
            if step_ns <= narrow_ns * _FREE_WIDTH or step_ns * session.lookahead <= left_ns:
                break
            budget -= max(budget // 8, 1)
        return budget

    def _sampling(self, works: list[Work]) -> RowSampling:
        if all(work.session.sampling.temperature == 0.0 for work in works):
            return self._greedy
        params = [work.session.sampling for work in works for _ in range(work.chunk.num_logits)]
        positions = [position for work in works for position in work.session.row_positions(work.chunk)]
        return RowSampling.build(params, positions, self._runner.device)

    def refuse_all(self) -> None:
        """A step met a fault of our own: every open sequence is quarantined, since any may be the cause."""
        for stream in self._streams:
            stream.refuse_all(NotSpeculatingReason.MALFORMED)

    def _send(self, stream: Stream) -> None:
        now_ns = self._clock_ns()
        entries: list[SpeculationEntries] = []
        for session in stream.sessions.values():
            item = session.entries_to_send(now_ns, self._step_ns)
            if item is not None:
                entries.append(item)
        if entries or stream.statuses:
            statuses, stream.statuses = tuple(stream.statuses), []
            stream.send(SpeculatorFrame(tuple(entries), statuses, self._runner.block_manager.num_free))


def _most_candidates(work: Work) -> int:
    """As many as an allocation may want at one place, the drafted token included: more where places are few."""
    budget = work.stream.budget
    return min(budget, max(_LEAST_RANKED, 2 * budget // max(work.chunk.num_logits, 1))) + 1


def _rows_of(logits: Logits, chunks: list[int]) -> torch.Tensor:
    """The logits rows of these chunks, in order; no copy where they are all."""
    if len(chunks) == len(logits.offsets):
        return logits.rows
    return torch.cat([logits.of(index) for index in chunks])
