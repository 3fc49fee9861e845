"""The life of every token: batch -> target forward -> acceptance -> outcome -> next speculation -> commit -> emit.

`step` is the whole story. All running sequences go through it together; one that hit the speculation cache is in the
very next forward, one that missed may sit out a bounded moment. Runs on the engine thread; `submit`, `abort` and `post`
may be called from any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from saguaro.core.logprobs import token_logprobs
from saguaro.core.planner import Planner
from saguaro.engine.runner import Runner
from saguaro.errors import Unavailable
from saguaro.types import (
    EventSink,
    FinishReason,
    GenerationEvent,
    LookupResult,
    RoundReport,
    TokenRun,
    VerificationOutcome,
)
from verifier_service.audit import Auditor
from verifier_service.inbox import Inbox
from verifier_service.isolation import compute, judge, told
from verifier_service.scheduler import Row, Scheduler
from verifier_service.sequence import Sequence
from verifier_service.speculations import Speculations
from verifier_service.tally import RoundTally
from verifier_service.target_rows import TargetRows
from verifier_service.traffic import Traffic

log = logging.getLogger(__name__)

# Events of a step, each with the sink of its sequence.
Deliver = Callable[[list[tuple[EventSink, GenerationEvent | Exception]]], None]


class DecodeLoop:
    """Continuous batching over all sequences of one target model."""

    def __init__(
        self,
        runner: Runner,
        speculations: Speculations,
        *,
        deliver: Deliver,
        max_running: int,
        max_waiting: int,
        prefill_chunk_tokens: int,
        auditor: Auditor | None = None,
        wake: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.speculations = speculations
        self.traffic = Traffic(clock_ns)
        self.tally = RoundTally()
        self.scheduler = Scheduler(
            runner.block_manager,
            max_running=max_running,
            prefill_chunk_tokens=prefill_chunk_tokens,
            on_admit=self._admitted,
            on_preempt=speculations.close,
            on_fault=self._fail,
        )
        self._runner = runner
        self._deliver = deliver
        self._target_rows = TargetRows(runner.device)
        self._auditor = auditor
        self._outbox: list[tuple[EventSink, GenerationEvent | Exception]] = []
        self._max_waiting = max_waiting
        self._clock_ns = clock_ns
        self._inbox = Inbox(wake)
        # One writer each: the submitting thread and the engine thread.
        self._num_submitted = self._num_seen = 0

    @property
    def planner(self) -> Planner:
        """That of the policy in force."""
        return self.speculations.planner

    # --- from any thread ----------------------------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Take a new sequence. Raises Unavailable when too many wait already."""
        if self.num_waiting >= self._max_waiting:
            raise Unavailable(f"{self.num_waiting} requests wait already; the limit is {self._max_waiting}")
        sequence.submitted_ns = sequence.ready_since_ns = self._clock_ns()
        self._num_submitted += 1
        self.post(lambda: self._add(sequence))

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for blocks, those included that the loop has not seen yet."""
        return self._num_submitted - self._num_seen + len(self.scheduler.waiting)

    def abort(self, sequence: Sequence) -> None:
        """End a sequence wherever it is; both sides' blocks are freed. Harmless when it has ended already."""
        self.post(lambda: self._remove(sequence))

    def stop(self, sequence: Sequence) -> None:
        """Like `abort`, for a caller that has all it wants and is told how it went: a last event goes out."""
        self.post(lambda: self._stop(sequence))

    def post(self, message: Callable[[], None]) -> None:
        """Run `message` on the engine thread before the next step."""
        self._inbox.put(message)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self) -> float | None:
        """One forward for all that are ready. Returns the seconds that nothing can be done (None: until woken)."""
        self._inbox.run_all()
        self._poll_waiting()
        if self._auditor is not None and not self._is_idle:
            self._auditor.give_way()
        rows = self.scheduler.next_batch()
        num_tokens = sum(len(row.chunk.token_ids) for row in rows)
        self._flush(int(self.planner.forward.expect_ns(num_tokens)))
        self._hand_out()  # late: whoever takes the events competes with us for the interpreter
        if not rows:
            if self._auditor is not None and self._is_idle and self._auditor.step():
                return 0
            return self._idle_seconds()

        started_ns = self._clock_ns()
        computed = compute(self._runner, rows)
        forward_ns = self._clock_ns() - started_ns
        if computed.is_whole and not any(row.is_prefill for row in rows):
            self.planner.forward.observe(num_tokens, forward_ns)
            self.planner.next_step(len(self.scheduler.running))

        judged = judge(self._target_rows, computed)
        for fault in (*computed.faults, *judged.faults):
            self._fail(fault.row.sequence, fault.error)
        if not judged.faults:
            now_ns = self._clock_ns()
            self.speculations.scale.observe(self.scheduler.running, computed.rows, judged.outcomes, now_ns)
        for index, row in enumerate(computed.rows):
            if row.sequence.scores_prompt or row.is_inner_prefill:
                self._charge(row.sequence, self._take_prompt, row, computed.logits.of(index))
        self._inbox.run_all()  # what the speculator pushed during the forward counts in the lookups below
        for row, outcome, chose in zip(judged.rows, judged.outcomes, judged.logits, strict=True):
            self._charge(row.sequence, self._end_round, row.sequence, outcome, chose, started_ns, forward_ns)
        return 0

    def _flush(self, expected_forward_ns: int) -> None:
        """What the speculator is told never costs an answer."""
        try:
            self.speculations.flush(expected_forward_ns, self._clock_ns())
        except Exception:
            log.exception("the speculator cannot be told what happened; all go on without it")
            self.speculations.detach("a fault inside the verifier ended the speculation; its log has the cause")

    def _charge(self, sequence: Sequence, work: Callable[..., None], *arguments: object) -> None:
        """Do what concerns this sequence alone: a fault of it ends the sequence, not the step."""
        try:
            work(*arguments)
        except Exception as fault:  # noqa: BLE001  # whatever it is
            self._fail(sequence, fault)

    def _take_prompt(self, row: Row, logits: Tensor) -> None:
        if row.sequence.scores_prompt:
            row.sequence.score_prompt(logits)
        if row.is_inner_prefill:
            row.sequence.took_prefill(row.chunk)

    def _add(self, sequence: Sequence) -> None:
        self._num_seen += 1
        self._charge(sequence, self._enter, sequence)

    def _enter(self, sequence: Sequence) -> None:
        if sequence.request.include_rounds:
            self.traffic.begin(sequence.sequence_id)
        if sequence.finish_reason is not None:  # resumed at its very end
            self._finish(sequence)
        else:
            self.scheduler.add(sequence)

    def _admitted(self, sequence: Sequence) -> None:
        if sequence.round == 0:
            self.tally.admitted(self._clock_ns() - sequence.submitted_ns)
        self.speculations.open(sequence, sequence.round)

    def _poll_waiting(self) -> None:
        now_ns = self._clock_ns()
        for sequence in [item for item in self.scheduler.running if item.wait_until_ns is not None]:
            self._charge(sequence, self.speculations.poll, sequence, now_ns)

    def _end_round(
        self, sequence: Sequence, outcome: VerificationOutcome, logits: Tensor, started_ns: int, forward_ns: int
    ) -> None:
        """The outcome is known: tokens are appended, the next speculation is looked up, the tokens go out.

        `logits` [K + 1, vocab]: the rows that chose them.
        """
        if sequence not in self.scheduler.running:
            return  # aborted while the forward ran
        num_draft, drafting_ns = len(sequence.speculation), sequence.drafting_ns
        self.planner.profile_of(sequence.drafted_as).observe(outcome.num_accepted, num_draft)
        run = sequence.commit(outcome)
        lookup = LookupResult.NOT_SPECULATED
        if sequence.finish_reason is None:
            batch = len(self.scheduler.running)
            lookup = self.speculations.next_speculation(sequence, outcome, batch, self._clock_ns())
        ended_ns = self._clock_ns()
        passed = self.traffic.take(sequence.sequence_id, sequence.round)
        report = RoundReport(
            round=sequence.round,
            num_draft_tokens=num_draft,
            num_accepted_tokens=min(outcome.num_accepted, len(run.token_ids)),
            lookup=lookup,
            wait_ns=started_ns - sequence.ready_since_ns,
            verify_ns=forward_ns,
            accept_ns=ended_ns - started_ns - forward_ns,
            drafting_ns=drafting_ns,
            sent_bytes=passed.sent_bytes,
            received_bytes=passed.received_bytes,
            started_ns=started_ns - sequence.submitted_ns,
            drafting_started_ns=_since(sequence.submitted_ns, passed.drafting_started_ns) if drafting_ns else None,
        )
        self.tally.count(report, run)
        sequence.end_round(report)
        sequence.ready_since_ns = ended_ns
        if sequence.request.logprobs:
            run = replace(run, logprobs=token_logprobs(logits, run.token_ids, sequence.request.top_logprobs))
        self._emit(sequence, replace(run, report=report))

    def _emit(self, sequence: Sequence, run: TokenRun) -> None:
        if sequence.request.prompt_logprobs and sequence.round == 1:
            self._outbox.append((sequence.sink, sequence.take_prompt_logprobs()))
        self._outbox.append((sequence.sink, run))
        if sequence.finish_reason is not None:
            self._finish(sequence)

    def _finish(self, sequence: Sequence) -> None:
        speculating, reason = self.speculations.state_of(sequence)
        self._remove(sequence)
        self._outbox.append((sequence.sink, sequence.finished(speculating=speculating, reason=reason)))
        if self._auditor is not None:
            self._auditor.offer(sequence)

    def _stop(self, sequence: Sequence) -> None:
        if sequence.finish_reason is None and sequence in (*self.scheduler.running, *self.scheduler.waiting):
            sequence.finish_reason = FinishReason.ABORTED
            self._finish(sequence)

    def _hand_out(self) -> None:
        if self._outbox:
            self._deliver(self._outbox)
            self._outbox = []

    def _remove(self, sequence: Sequence) -> None:
        self.speculations.close(sequence)
        self.scheduler.remove(sequence)
        self.traffic.end(sequence.sequence_id)

    @property
    def _is_idle(self) -> bool:
        return not self.scheduler.running and not self.scheduler.waiting

    def _idle_seconds(self) -> float | None:
        """Until the first wait for a speculation ends; None when only a message can bring work."""
        waits = [item.wait_until_ns for item in self.scheduler.running if item.wait_until_ns is not None]
        if not waits:
            return None
        return max(min(waits) - self._clock_ns(), 0) / 1e9

    def fail_running(self, error: Exception) -> None:
        """A step met a fault of our own: the sequences that were in it end with an error, the others go on.

        After Unavailable, with which all can go on elsewhere, none does.
        """
        failed = list(self.scheduler.running)
        if isinstance(error, Unavailable):
            self._inbox.run_all()
            failed = [*self.scheduler.running, *self.scheduler.waiting]
        for sequence in failed:
            self._fail(sequence, error)
        if self._auditor is not None:
            self._auditor.abandon()
        self._hand_out()

    def _fail(self, sequence: Sequence, fault: Exception) -> None:
        self._remove(sequence)
        self._outbox.append((sequence.sink, told(sequence, fault)))


def _since(origin_ns: int, instant_ns: int | None) -> int | None:
    """Never negative: an instant of another process is an estimate."""
    return None if instant_ns is None else max(instant_ns - origin_ns, 0)
