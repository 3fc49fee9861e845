"""What the decode loop knows of the speculator: who is open there, the local speculation cache, and what a miss does.

Everything here runs on the engine thread and never blocks, but for `receive_entries`: it may run on any thread, so that
entries are in the cache when the verification ends, not only then put there. The stream is `speculator_link`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from saguaro.core.fallback import JustInTimeBudget
from saguaro.core.planner import Planner, RoundKind
from saguaro.core.speculation_cache import CacheAnswer, SpeculationCache
from saguaro.types import (
    CloseSequence,
    CommitRound,
    JustInTime,
    LookupResult,
    NotSpeculatingReason,
    OpenSequence,
    SequenceStatus,
    SpeculatorFrame,
    TokenProvenance,
    VerificationOutcome,
    VerifierFrame,
)
from verifier_service.outbox import Outbox
from verifier_service.sequence import Sequence

log = logging.getLogger(__name__)

_RETRY_NS = {
    NotSpeculatingReason.UNKNOWN_SEQUENCE: 0,
    NotSpeculatingReason.OVERLOADED: 1_000_000_000,
    NotSpeculatingReason.DRAINING: 1_000_000_000,
}  # the other refusals are for the sequence's life
_KINDS = {TokenProvenance.CACHED_DRAFT: RoundKind.HIT, TokenProvenance.LATE_DRAFT: RoundKind.WAITED}


@dataclass(slots=True)
class Opening:
    """One sequence as it is open at the speculator."""

    epoch: int
    is_refused: bool = False
    retry_at_ns: int | None = None  # when a refused one may be opened again; None never


@dataclass(frozen=True, slots=True)
class Wait:
    """A sequence waits for a just-in-time speculation after the outcome of `round`."""

    round: int
    outcome: VerificationOutcome
    lookahead: int
    since_ns: int


class Speculations:
    """Opens, commits, closes and lookups for all sequences of one verifier."""

    def __init__(
        self,
        *,
        planner: Planner,
        max_lookahead: int,
        max_budget: int,
        vocab_size: int,
        just_in_time_ns: int | None,
        on_stall: Callable[[], None] = lambda: None,
    ) -> None:
        self.planner = planner
        self.budget = self._wanted_budget = self._served_budget = max_budget
        self.detached_reason: str | None = "no speculator is attached yet"
        self.num_malformed = 0
        self._vocab_size = vocab_size
        self._on_stall = on_stall
        self._send: Callable[[VerifierFrame], None] | None = None
        self._max_lookahead = self._wanted_lookahead = max_lookahead
        self._cache = SpeculationCache(max_entries=max_budget + 1, max_tokens=max(max_lookahead, 1))
        self._cache_lock = threading.Lock()
        self._patience = JustInTimeBudget(just_in_time_ns)
        self._outbox = Outbox()
        self._openings: dict[int, Opening] = {}
        self._waits: dict[int, Wait] = {}
        self._last_epoch = 0

    @property
    def lookahead(self) -> int:
        """K in force: what the plan wants and the speculator serves."""
        return min(self.planner.plan.lookahead, self._max_lookahead)

    @property
    def num_stale(self) -> int:
        """Pieces that came for a round, epoch or sequence that was over."""
        return self._cache.num_stale

    def follow(self, planner: Planner, budget: int) -> None:
        """Plan by this planner from now on, with at most `budget` outcomes a round."""
        self.planner, self._wanted_budget = planner, budget
        self.budget = min(budget, self._served_budget)

    # --- the speculator comes and goes --------------------------------------------------------------------------------

    def attach(self, send: Callable[[VerifierFrame], None], max_lookahead: int, max_budget: int) -> None:
        """A speculator passed the handshake; sequences are opened there when they next commit."""
        self.detach("")
        self._max_lookahead = min(self._wanted_lookahead, max_lookahead)
        self._served_budget = max_budget
        self.budget = min(self._wanted_budget, max_budget)
        self._send = send
        self.detached_reason = None
        self._patience.renew()

    def detach(self, reason: str) -> None:
        """The speculator is gone; every sequence goes on without it."""
        self._send = None
        self.detached_reason = reason
        with self._cache_lock:
            for sequence_id in self._openings:
                self._cache.close(sequence_id)
        self._openings.clear()
        self._waits.clear()
        self._outbox.clear()
        self._outbox.forget_link()

    def receive_entries(self, frame: SpeculatorFrame, now_ns: int) -> None:
        """Entries go to the local cache; what is malformed, or of a round or epoch that is over, changes nothing."""
        for entries in frame.entries:
            self._outbox.observe(entries, now_ns)
            if any(max(piece.token_ids, default=0) >= self._vocab_size for piece in entries.pieces):
                self.num_malformed += 1
            else:
                with self._cache_lock:
                    self._cache.insert(entries)

    def receive_statuses(self, frame: SpeculatorFrame, now_ns: int) -> None:
        """The speculator's word on sequences that it does not speculate."""
        for status in frame.statuses:
            self._receive_status(status, now_ns)

    def _receive_status(self, status: SequenceStatus, now_ns: int) -> None:
        opening = self._openings.get(status.sequence_id)
        if opening is None or opening.epoch != status.epoch:
            return
        log.info("sequence %d is not speculated: %s", status.sequence_id, status.reason.name)
        self._forget(status.sequence_id)
        self._waits.pop(status.sequence_id, None)
        opening.is_refused = True
        if status.reason in _RETRY_NS:
            opening.retry_at_ns = now_ns + _RETRY_NS[status.reason]

    # --- a sequence's life --------------------------------------------------------------------------------------------

    def open(self, sequence: Sequence, round: int) -> None:
        """Tell the speculator of a sequence whose `round` is verified next, without a speculation."""
        if self._send is None or self._max_lookahead == 0 or sequence.request.disable_speculation:
            return
        self._last_epoch += 1
        self._openings[sequence.sequence_id] = Opening(self._last_epoch)
        self._expect(sequence.sequence_id, self._last_epoch, round)
        self._outbox.opens.append(
            OpenSequence(
                sequence.sequence_id,
                self._last_epoch,
                round,
                tuple(sequence.tokens),
                sequence.sampling,
                sequence.num_prompt,
            )
        )

    def close(self, sequence: Sequence) -> None:
        """The sequence ended here, or its KV was given up; nothing more is wanted for it."""
        opening = self._openings.pop(sequence.sequence_id, None)
        self._waits.pop(sequence.sequence_id, None)
        self._forget(sequence.sequence_id)
        self._outbox.forget(sequence.sequence_id)
        if opening is not None and not opening.is_refused:
            self._outbox.closes.append(CloseSequence(sequence.sequence_id, opening.epoch))

    def next_speculation(
        self, sequence: Sequence, outcome: VerificationOutcome, batch: int, now_ns: int
    ) -> LookupResult:
        """Look up the outcome of the round that ended, set what is verified next, and commit it to the speculator.

        Called with the outcome's tokens appended and `sequence.round` still the round that ended, of `batch` sequences.
        After a miss the sequence may have to wait (`wait_until_ns`); then `poll` decides.
        """
        kind = _KINDS.get(sequence.drafted_as, RoundKind.PLAIN)
        sequence.verify_next((), TokenProvenance.PLAIN)
        opening = self._openings.get(sequence.sequence_id)
        if opening is None or opening.is_refused:
            self._guess_without_model(sequence, batch)
            if opening is None or (opening.retry_at_ns is not None and now_ns >= opening.retry_at_ns):
                self.open(sequence, sequence.round + 1)
            return LookupResult.NOT_SPECULATED
        answer = self._lookup(sequence.sequence_id, outcome)
        is_hit = answer.result is LookupResult.HIT
        if self.lookahead > 0:
            self.planner.observe_lookup(hit=is_hit, depth=len(answer.token_ids), after=kind)
        if is_hit and self.lookahead > 0:
            speculation = answer.token_ids[: self.lookahead]
            sequence.verify_next(speculation, TokenProvenance.CACHED_DRAFT, answer.drafting_ns)
            self._commit(sequence, opening, sequence.round, outcome)
        elif self._waits_for_draft and sequence.max_speculation > 0:
            lookahead = min(self.planner.plan.just_in_time_lookahead, self.lookahead)
            sequence.wait_until_ns = now_ns + self._patience.wait_ns
            self._waits[sequence.sequence_id] = Wait(sequence.round, outcome, lookahead, now_ns)
            self._outbox.commits.append(
                CommitRound(sequence.sequence_id, opening.epoch, sequence.round, outcome, JustInTime(lookahead))
            )
        else:
            self._guess_without_model(sequence, batch, outcome)
            self._commit(sequence, opening, sequence.round, outcome)
        return answer.result

    @property
    def _waits_for_draft(self) -> bool:
        return self.lookahead > 0 and self.planner.plan.waits_on_miss and self._patience.wait_ns > 0

    def _guess_without_model(self, sequence: Sequence, batch: int, outcome: VerificationOutcome | None = None) -> None:
        """The fast backups, where they have been worth their rows: own n-grams, or a draft for another bonus token."""
        if sequence.request.disable_speculation:
            return
        guesses = {TokenProvenance.NGRAM_DRAFT: sequence.ngrams.propose(sequence.tokens, self._max_lookahead)}
        if outcome is not None:
            with self._cache_lock:
                guesses[TokenProvenance.NEIGHBOUR_DRAFT] = self._cache.neighbour(sequence.sequence_id, outcome)
        best = max(self.planner.worth(kind, len(guess), batch) for kind, guess in guesses.items())
        if best.length:
            sequence.verify_next(guesses[best.kind][: best.length], best.kind)

    def poll(self, sequence: Sequence, now_ns: int) -> None:
        """Let a waiting sequence go on if its speculation came, or if it waited long enough."""
        wait = self._waits.get(sequence.sequence_id)
        opening = self._openings.get(sequence.sequence_id)
        if wait is None or opening is None:  # the speculator went away meanwhile
            sequence.wait_until_ns = None
            return
        answer = self._lookup(sequence.sequence_id, wait.outcome)
        if answer.result is LookupResult.HIT:
            self._patience.arrived(now_ns - wait.since_ns)
            self.planner.observe_just_in_time(len(answer.token_ids), now_ns - wait.since_ns)
            sequence.verify_next(answer.token_ids, TokenProvenance.LATE_DRAFT, answer.drafting_ns)
            if len(sequence.speculation) == wait.lookahead:  # whole, as the speculator takes for granted
                self._expect(sequence.sequence_id, opening.epoch, wait.round + 1)
            else:
                self._commit(sequence, opening, wait.round, wait.outcome)
        elif sequence.wait_until_ns is None or now_ns >= sequence.wait_until_ns:
            self._patience.expired()
            self._commit(sequence, opening, wait.round, wait.outcome)
        else:
            return
        sequence.wait_until_ns = None
        del self._waits[sequence.sequence_id]
        if self._patience.is_exhausted:
            self.detach("the speculator is stalled: it did not answer in time again and again")
            self._on_stall()

    def _commit(self, sequence: Sequence, opening: Opening, round: int, outcome: VerificationOutcome) -> None:
        """Tell the speculator the outcome of `round` and that the sequence's speculation is verified next."""
        self._outbox.commits.append(
            CommitRound(sequence.sequence_id, opening.epoch, round, outcome, sequence.speculation)
        )
        self._expect(sequence.sequence_id, opening.epoch, round + 1)

    def _expect(self, sequence_id: int, epoch: int, round: int) -> None:
        with self._cache_lock:
            self._cache.expect(sequence_id, epoch, round)

    def _lookup(self, sequence_id: int, outcome: VerificationOutcome) -> CacheAnswer:
        with self._cache_lock:
            return self._cache.lookup(sequence_id, outcome)

    def _forget(self, sequence_id: int) -> None:
        with self._cache_lock:
            self._cache.close(sequence_id)

    def state_of(self, sequence: Sequence) -> tuple[bool, str]:
        """Whether the sequence is speculated now, and if not, why."""
        opening = self._openings.get(sequence.sequence_id)
        if opening is not None and not opening.is_refused:
            return True, ""
        if sequence.request.disable_speculation:
            return False, "the request asked for no speculation"
        if self._max_lookahead == 0:
            return False, "the verifier's lookahead is 0"
        if self.detached_reason is not None:
            return False, self.detached_reason
        return False, "the speculator refused the sequence" if opening else "the sequence was not yet opened"

    def flush(self, expected_forward_ns: int, now_ns: int) -> None:
        """Send what has gathered. `expected_forward_ns`: how long the forward about to start should take."""
        self._outbox.flush(self._send, self.lookahead, self.budget, expected_forward_ns, now_ns)
