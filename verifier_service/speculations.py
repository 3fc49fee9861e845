"""What the decode loop knows of the speculator: who is open there, the local speculation cache, and what a miss does.

Everything here runs on the engine thread and never blocks, but for `receive_entries`: it may run on any thread, so that
entries are in the cache when the verification ends, not only then put there. The stream is `speculator_link`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from saguaro.core.fallback import Patience
from saguaro.core.planner import Planner, RoundKind
from saguaro.core.proposal import Proposal
from saguaro.core.speculation_cache import CacheAnswer
from saguaro.errors import InvalidRequest
from saguaro.types import (
    AcceptanceMode,
    CloseSequence,
    JustInTime,
    LookupResult,
    SequenceStatus,
    SpeculatorFrame,
    TokenProvenance,
    TrafficPolicy,
    VerificationOutcome,
    VerifierFrame,
)
from verifier_service.backup import guess_without_model
from verifier_service.class_plans import ClassPlans
from verifier_service.local_cache import LocalCache
from verifier_service.openings import Opening, Wait
from verifier_service.outbox import Outbox
from verifier_service.reasons import why_not_drafted
from verifier_service.scaling import CachedScale
from verifier_service.sequence import Sequence

log = logging.getLogger(__name__)

_KINDS = {TokenProvenance.CACHED_DRAFT: RoundKind.HIT, TokenProvenance.LATE_DRAFT: RoundKind.WAITED}


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
        scale: CachedScale | None = None,
        on_stall: Callable[[], None] = lambda: None,
    ) -> None:
        self.plans = ClassPlans(planner, max_lookahead)
        self.scale = scale or CachedScale(1.0)
        self.budget = self._wanted_budget = self._served_budget = max_budget
        self.detached_reason: str | None = "no speculator is attached yet"
        self._num_broken_laws = 0
        self._vocab_size = vocab_size
        self._on_stall = on_stall
        self._send: Callable[[VerifierFrame], None] | None = None
        self._modes: Collection[AcceptanceMode] = ()
        self._wanted_lookahead = max_lookahead
        self._cache = LocalCache(max_entries=max_budget + 1, max_tokens=max(max_lookahead, 1), vocab_size=vocab_size)
        self._patience = Patience(just_in_time_ns)
        self._outbox = Outbox()
        self._openings: dict[int, Opening] = {}
        self._waits: dict[int, Wait] = {}
        self._last_epoch = 0

    @property
    def planner(self) -> Planner:
        """That of the policy in force."""
        return self.plans.planner

    @property
    def num_stale(self) -> int:
        """Pieces that came for a round, epoch or sequence that was over."""
        return self._cache.num_stale

    @property
    def num_malformed(self) -> int:
        """Speculations with tokens that the target does not have, or with missing or broken laws."""
        return self._cache.num_malformed + self._num_broken_laws

    def follow(self, planner: Planner, budget: int) -> None:
        """Plan by this planner from now on, with at most `budget` outcomes a round."""
        self.plans, self._wanted_budget = replace(self.plans, planner=planner), budget
        self.budget = min(budget, self._served_budget)

    def keep_to(self, policy: TrafficPolicy) -> None:
        """Keep to these bounds from now on."""
        self.plans = replace(self.plans, policy=policy)

    # --- the speculator comes and goes --------------------------------------------------------------------------------

    def attach(
        self,
        send: Callable[[VerifierFrame], None],
        max_lookahead: int,
        max_budget: int,
        modes: Collection[AcceptanceMode],
    ) -> None:
        """A speculator passed the handshake; sequences of these modes are opened there when they next commit."""
        self.detach("")
        self.plans = replace(self.plans, max_lookahead=min(self._wanted_lookahead, max_lookahead))
        self._served_budget = max_budget
        self.budget = min(self._wanted_budget, max_budget)
        self._send, self._modes = send, modes
        self.detached_reason = None
        self._patience.renew()
        self.planner.look_now()

    def detach(self, reason: str) -> None:
        """The speculator is gone; every sequence goes on without it."""
        self._send = None
        self.detached_reason = reason
        self._cache.close(self._openings)
        self._openings, self._waits = {}, {}
        self._outbox.forget_link()
        self._patience.settled()

    def receive_entries(self, frame: SpeculatorFrame, now_ns: int) -> None:
        """Entries go to the local cache; what is malformed, or of a round or epoch that is over, changes nothing."""
        self._patience.heard()
        for entries in frame.entries:
            self._outbox.observe(entries, now_ns)
            self._cache.insert(entries)

    def receive_statuses(self, frame: SpeculatorFrame, now_ns: int) -> None:
        """The speculator's word on sequences that it does not speculate."""
        for status in frame.statuses:
            self._receive_status(status, now_ns)

    def _receive_status(self, status: SequenceStatus, now_ns: int) -> None:
        opening = self._openings.get(status.sequence_id)
        if opening is None or opening.epoch != status.epoch or opening.is_refused:
            return  # a commit that crossed the refusal is unknown there, which says nothing new
        self._refuse(status.sequence_id, opening, f"the speculator refused the sequence: {status.reason.name.lower()}")
        opening.refuse_for(status.reason, now_ns)

    def _refuse(self, sequence_id: int, opening: Opening, reason: str) -> None:
        """The sequence goes on without the speculator."""
        log.info("sequence %d is not speculated: %s", sequence_id, reason)
        opening.refusal = reason
        self._cache.close((sequence_id,))
        self._waits.pop(sequence_id, None)
        self._outbox.closes.append(CloseSequence(sequence_id, opening.epoch))  # it may not be its own word

    # --- a sequence's life --------------------------------------------------------------------------------------------

    def open(self, sequence: Sequence, round: int) -> bool:
        """Tell the speculator of a sequence whose `round` is verified next, without a speculation. Whether it was."""
        if self._why_not(sequence):
            return False
        assert not sequence.speculation, "an open says that nothing is verified"
        self._last_epoch += 1
        before = self._openings.get(sequence.sequence_id)
        num_before = 0 if before is None else before.num_before + 1
        self._openings[sequence.sequence_id] = Opening(self._last_epoch, num_before=num_before)
        self._cache.expect(sequence.sequence_id, self._last_epoch, round)
        opened = sequence.opened(self._last_epoch, round)
        self._outbox.open(opened, self.plans.lookahead(sequence.request.traffic_class))
        return True

    def close(self, sequence: Sequence) -> None:
        """The sequence ended here, or its KV was given up; nothing more is wanted for it."""
        opening = self._openings.pop(sequence.sequence_id, None)
        self._waits.pop(sequence.sequence_id, None)
        self._cache.close((sequence.sequence_id,))
        self._outbox.forget(sequence.sequence_id)
        if opening is not None and not opening.is_refused:
            self._outbox.closes.append(CloseSequence(sequence.sequence_id, opening.epoch))
        if not self._openings:
            self._patience.settled()

    def next_speculation(
        self, sequence: Sequence, outcome: VerificationOutcome, batch: int, now_ns: int
    ) -> LookupResult:
        """Look up the outcome of the round that ended, set what is verified next, and commit it to the speculator.

        Called with the outcome's tokens appended and `sequence.round` still the round that ended, of `batch` sequences.
        After a miss the sequence may have to wait (`wait_until_ns`); then `poll` decides.
        """
        kind = _KINDS.get(sequence.drafted_as, RoundKind.PLAIN)
        sequence.verify_next((), TokenProvenance.PLAIN)
        most = self.plans.most(sequence.request.traffic_class)
        if most == 0 or self.planner.rests:
            self.close(sequence)
        opening = self._openings.get(sequence.sequence_id)
        if opening is None or opening.is_refused:
            may_open = opening is None or (opening.retry_at_ns is not None and now_ns >= opening.retry_at_ns)
            if not (may_open and self.open(sequence, sequence.round + 1)):  # which says that nothing is verified
                guess_without_model(sequence, self.planner, most, batch)
            return LookupResult.NOT_SPECULATED
        answer = self._cache.lookup(sequence.sequence_id, outcome)
        is_hit = answer.result is LookupResult.HIT
        plan = self.plans.plan(sequence.request.traffic_class, batch)
        waits = plan.lookahead > 0 and plan.waits_on_miss and self._patience.wait_ns > 0
        if plan.lookahead > 0 and not self._patience.is_silent:  # else what it lacks says nothing of its drafts
            is_cut = plan.lookahead < self.planner.plan.lookahead  # by its class, which says nothing of the draft
            depth = None if is_cut else len(answer.token_ids)
            self.planner.observe_lookup(hit=is_hit, depth=depth, after=kind, late=answer.result is LookupResult.LATE)
        if is_hit and plan.lookahead > 0:
            if not self._verify_drafted(sequence, opening, answer, plan.lookahead, TokenProvenance.CACHED_DRAFT):
                return LookupResult.NOT_SPECULATED
            self._commit(sequence, opening, sequence.round, outcome)
        elif waits and sequence.max_speculation > 0:
            lookahead = min(plan.just_in_time_lookahead, plan.lookahead)
            sequence.wait_until_ns = now_ns + self._patience.wait_ns
            self._waits[sequence.sequence_id] = Wait(sequence.round, outcome, lookahead, now_ns)
            asked = opening.commit(sequence, sequence.round, outcome, JustInTime(lookahead))
            self._outbox.commit(asked, plan.lookahead)
        else:
            neighbour = self._cache.neighbour(sequence.sequence_id, outcome)
            num_neighbours = min(len(neighbour.token_ids), most)
            most = guess_without_model(sequence, self.planner, most, batch, num_neighbours)
            if most and not self._verify_drafted(sequence, opening, neighbour, most, TokenProvenance.NEIGHBOUR_DRAFT):
                return LookupResult.NOT_SPECULATED
            self._commit(sequence, opening, sequence.round, outcome)
        return answer.result

    def _verify_drafted(
        self, sequence: Sequence, opening: Opening, answer: CacheAnswer, most: int, drafted_as: TokenProvenance
    ) -> bool:
        """Verify next what the draft model drafted, `most` tokens of it, in rejection mode with their laws.

        Where these are missing or broken, nothing is set, the sequence is quarantined, and this is False.
        """
        token_ids, drawn = answer.token_ids[:most], None
        if sequence.draws_drafts:
            try:
                drawn = Proposal.drawn(token_ids, answer.distributions[: len(token_ids)], self._vocab_size)
            except InvalidRequest as error:
                self._num_broken_laws += 1
                self._refuse(sequence.sequence_id, opening, f"its speculation was malformed: {error}")
                return False
        sequence.verify_next(token_ids, drafted_as, answer.drafting_ns, drawn)
        return True

    def poll(self, sequence: Sequence, now_ns: int) -> None:
        """Let a waiting sequence go on if its speculation came, or if it waited long enough."""
        wait = self._waits.get(sequence.sequence_id)
        opening = self._openings.get(sequence.sequence_id)
        if wait is None or opening is None:  # the speculator went away meanwhile
            sequence.wait_until_ns = None
            return
        answer = self._cache.lookup(sequence.sequence_id, wait.outcome)
        if answer.result is LookupResult.HIT:
            self._patience.arrived(now_ns - wait.since_ns)
            self.planner.observe_just_in_time(len(answer.token_ids), now_ns - wait.since_ns)
            longest, late = self.plans.max_lookahead, TokenProvenance.LATE_DRAFT
            taken = self._verify_drafted(sequence, opening, answer, longest, late)
        elif sequence.wait_until_ns is None or now_ns >= sequence.wait_until_ns:
            self._patience.expired(now_ns - wait.since_ns)
            self.planner.observe_just_in_time(wait.lookahead, now_ns - wait.since_ns)  # it takes longer than that
            taken = True
        else:
            return
        sequence.wait_until_ns = None
        self._waits.pop(sequence.sequence_id, None)
        if taken:  # what is verified may not be what was drafted just in time: the speculator is told
            self._commit(sequence, opening, wait.round, wait.outcome)

    def _commit(self, sequence: Sequence, opening: Opening, round: int, outcome: VerificationOutcome) -> None:
        """Tell the speculator the outcome of `round` and that the sequence's speculation is verified next."""
        commit = opening.commit(sequence, round, outcome, sequence.speculation)
        self._outbox.commit(commit, self.plans.lookahead(sequence.request.traffic_class))
        self._cache.expect(sequence.sequence_id, opening.epoch, round + 1)

    def state_of(self, sequence: Sequence) -> tuple[bool, str]:
        """Whether the sequence is speculated now, and if not, why."""
        opening = self._openings.get(sequence.sequence_id)
        if opening is not None and not opening.is_refused:
            return True, ""
        reason = self._why_not(sequence) or (opening.refusal if opening else "the sequence was not yet opened")
        return False, reason

    def _why_not(self, sequence: Sequence) -> str:
        return why_not_drafted(sequence, self.plans, self.detached_reason, self._modes)

    def flush(self, expected_forward_ns: int, now_ns: int) -> None:
        """Send what has gathered. `expected_forward_ns`: how long the forward about to start should take."""
        if self._patience.take_step(now_ns):
            self._patience.stalled()
            self.detach("the speculator is stalled: it owes answers and sends nothing")
            self._on_stall()
        if self._outbox.asks:
            self._patience.asked(now_ns)
        self._outbox.flush(
            self._send,
            budget=self.budget,
            cached_scale=self.scale.value,
            expected_forward_ns=expected_forward_ns,
            now_ns=now_ns,
        )
