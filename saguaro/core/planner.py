"""Chooses, online and from measurements alone, how far to speculate and what a miss does.

Every few steps the plan that promises most tokens a second is taken: lookahead K (0 included: plain decoding, the same
code path) and, by b*, whether a sequence that missed waits for a just-in-time speculation. The formulas are those of
docs of the algorithm: a round emits E(K) = 1 + sum of prod a_i tokens and costs the target's forward at its rows, plus
the wait where it waits.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from saguaro.core.acceptance_profile import AcceptanceProfile
from saguaro.core.cost_model import fallback_batch_size, steady_hit_rate
from saguaro.core.forward_time import ForwardTime
from saguaro.core.probe import Probe
from saguaro.types import TokenProvenance

_STEPS_A_PLAN = 8
_START_BREAK_EVEN = 2.0  # until measured: alone a wait is rarely wrong, among others rarely right
_LEAST_TOKENS = 1.2  # of a round with one draft token
_HYSTERESIS = 1.02  # another plan must promise this much more than the one in force
_PROBE_LOOKAHEAD = 2
_GUESSES = (TokenProvenance.NGRAM_DRAFT, TokenProvenance.NEIGHBOUR_DRAFT)
_DECAY = 0.05
_DEPTH_DECAY = 0.2
_FORGET = 0.99


class RoundKind(enum.Enum):
    """What a round verified, and so how well its outcome can be foretold."""

    HIT = "a speculation of the cache"
    WAITED = "one drafted just in time"
    PLAIN = "nothing, or a guess without a model"


# Until measured. After a plain round only the bonus token is to be guessed, so nearly every outcome is prepared.
_PRIOR_HITS = {RoundKind.HIT: 0.5, RoundKind.WAITED: 0.5, RoundKind.PLAIN: 0.75}


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """For experiments: always this lookahead and budget, and waits below this batch size."""

    lookahead: int
    budget: int
    break_even_batch: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What is in force. Rates in tokens a second and sequence, 0 where nothing is measured yet."""

    lookahead: int
    waits_on_miss: bool
    break_even_batch: float
    just_in_time_lookahead: int = 0  # tokens that such a wait is worth
    predicted_rate: float = 0.0
    plain_rate: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class GuessWorth:
    """What verifying the first `length` tokens of a guess makes of the batch's speed, as a factor."""

    gain: float
    length: int
    kind: TokenProvenance


@dataclass(frozen=True, slots=True)
class _Fallback:
    """One way to go on after a miss; `tokens` a round, `hit_rate` the steady share of hits under it."""

    length: int
    hit_rate: float
    tokens: float
    wait_ns: float
    verify_ns: float

    @property
    def rate(self) -> float:
        """Tokens a nanosecond and sequence."""
        return self.tokens / (self.verify_ns + (1.0 - self.hit_rate) * self.wait_ns)


class Planner:
    """Measurements in, plans out. Pure: time comes in as values."""

    def __init__(
        self,
        *,
        max_lookahead: int,
        start_lookahead: int,
        fixed: FixedPolicy | None = None,
        forward: ForwardTime | None = None,
    ) -> None:
        """`forward`: what is known of this target's times already."""
        self.forward = forward or ForwardTime()
        self.drafts = AcceptanceProfile(max(max_lookahead, 1))
        # Of guesses that cost no model: until measured they are given the benefit of the doubt.
        self._guesses = {kind: AcceptanceProfile(max(max_lookahead, 1), prior=0.3) for kind in _GUESSES}
        self._max_lookahead = max_lookahead
        self._fixed = fixed
        self._hit_rate = 0.5
        self._hits_after = dict(_PRIOR_HITS)
        # Mean length of a hit's speculation under each lookahead: shorter where the draft is too slow for it.
        self._depths = [float(lookahead) for lookahead in range(max_lookahead + 1)]
        self._just_in_time_ns = 0.0  # of one speculation, per token and the extend before it
        self._steps = 0
        self._probe = Probe()
        start = min(start_lookahead, max_lookahead)
        self._plan = Plan(start, True, break_even_batch=_START_BREAK_EVEN, just_in_time_lookahead=start)

    # --- measurements -------------------------------------------------------------------------------------------------

    def observe_lookup(self, *, hit: bool, depth: int | None, after: RoundKind, late: bool = False) -> None:
        """A lookup after a round of that kind: whether it hit, and how long the speculation was; None if it was cut.

        `late`: nothing of the round's entries had come.
        """
        if not late:
            self._probe.answers()
        elif self._probe.is_warming:
            return
        value = 1.0 if hit else 0.0
        self._hit_rate += (value - self._hit_rate) * _DECAY
        self._hits_after[after] += (value - self._hits_after[after]) * _DECAY
        if hit and depth is not None:
            lookahead = self._plan.lookahead
            self._depths[lookahead] += (min(depth, lookahead) - self._depths[lookahead]) * _DEPTH_DECAY

    def observe_just_in_time(self, length: int, took_ns: int) -> None:
        """A speculation of that length was drafted just in time."""
        each = took_ns / (length + 1)
        self._just_in_time_ns += (each - self._just_in_time_ns) * (_DECAY if self._just_in_time_ns else 1.0)

    @property
    def hit_rate(self) -> float:
        """Decayed share of lookups that hit."""
        return self._hit_rate

    # --- the plan -----------------------------------------------------------------------------------------------------

    @property
    def is_fixed(self) -> bool:
        """Whether the plan is given, not made."""
        return self._fixed is not None

    @property
    def rests(self) -> bool:
        """Nothing is wanted of the speculator until the next look whether speculation pays, or until loads change."""
        return self._fixed is None and self._plan.lookahead == 0 and self._probe.is_resting

    def look_now(self) -> None:
        """A speculator came: where plain decoding is the plan, see at once whether it pays with this one."""
        self._probe.look_now()

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    def next_step(self, batch: int) -> Plan:
        """The plan for a step of `batch` sequences; made anew every few steps."""
        if self._fixed is not None:
            lookahead, threshold = self._fixed.lookahead, self._fixed.break_even_batch
            self._plan = Plan(lookahead, batch < threshold, threshold, lookahead)
            return self._plan
        self._steps += 1
        if self._steps < _STEPS_A_PLAN:
            self._plan = replace(self._plan, waits_on_miss=batch < self._plan.break_even_batch)
        was_looking = self._probe.is_on
        if (was_looking or self._plan.lookahead == 0) and self._probe.next_step():
            self._plan = self._look()
        elif (was_looking or self._steps % _STEPS_A_PLAN == 0) and batch > 0:
            self._plan_anew(batch)
        return self._plan

    def _plan_anew(self, batch: int) -> None:
        self._plan = self._best(batch)
        self._depths = [  # what is not in force may have become possible, and is tried again in time
            depth + (lookahead - depth) * (1 - _FORGET) if lookahead != self._plan.lookahead else depth
            for lookahead, depth in enumerate(self._depths)
        ]
        if not self._plan.waits_on_miss:
            self._just_in_time_ns *= _FORGET  # nothing measures it now; tried again when it looks cheap enough
        if self._plan.lookahead > 0:
            self._probe.look_soon()

    def _look(self) -> Plan:
        """A short lookahead that disturbs little, for what it teaches."""
        lookahead = min(_PROBE_LOOKAHEAD, self._max_lookahead)
        return Plan(lookahead, False, 0.0, 0, self._plan.predicted_rate, self._plan.plain_rate)

    def _best(self, batch: int) -> Plan:
        plans = [self._predict(lookahead, batch) for lookahead in range(self._max_lookahead + 1)]
        best = max(plans, key=lambda plan: plan.predicted_rate)
        if best.predicted_rate < plans[0].predicted_rate * _HYSTERESIS:
            if batch > 1 or self.drafts.expected_tokens(1) < _LEAST_TOKENS or len(plans) == 1:
                return plans[0]  # speculation that promises nothing only takes the speculator's time
            # Alone, a draft that is right this often is kept: the times of small forwards differ by less than their
            # noise on a shared machine, and one wrong reading must not switch speculation off.
            return max(plans[1:], key=lambda plan: plan.predicted_rate)
        current = plans[self._plan.lookahead]
        return best if best.predicted_rate > current.predicted_rate * _HYSTERESIS else current

    def _predict(self, lookahead: int, batch: int) -> Plan:
        """Tokens a second and sequence with this lookahead, by the better of waiting and not waiting."""
        plain_ns = self.forward.expect_ns(batch)
        plain_rate = 1e9 / plain_ns if plain_ns else 0.0
        if lookahead == 0 or not plain_ns:
            return Plan(lookahead, False, 0.0, 0, plain_rate, plain_rate)
        depth = self._depths[lookahead]
        tokens = self.drafts.expected_tokens_up_to(lookahead)
        slow = max(
            (self._kind(RoundKind.WAITED, depth, length, tokens, batch) for length in range(1, lookahead + 1)),
            key=lambda kind: kind.rate,
        )
        fast = self._kind(RoundKind.PLAIN, depth, 0, tokens, batch)
        threshold = _START_BREAK_EVEN
        if slow.wait_ns:
            threshold = fallback_batch_size(
                slow.hit_rate, slow.tokens, fast.tokens, fast.tokens, slow.wait_ns / slow.verify_ns
            )
        waits = batch < threshold
        rate = 1e9 * (slow if waits else fast).rate
        return Plan(lookahead, waits, threshold, slow.length, rate, plain_rate)

    def _kind(self, kind: RoundKind, depth: float, length: int, tokens: Sequence[float], batch: int) -> _Fallback:
        """What misses that draft `length` tokens just in time come to, all rounds counted."""
        p = _steady(self._hits_after[RoundKind.HIT], self._hits_after[kind])
        wait_ns = self._just_in_time_ns * (length + 1) if length else 0.0
        return _Fallback(
            length=length,
            hit_rate=p,
            tokens=p * _between(tokens, depth) + (1 - p) * tokens[length],
            wait_ns=wait_ns,
            verify_ns=self.forward.expect_ns(batch * (1 + p * depth + (1 - p) * length)),
        )

    def profile_of(self, drafted_as: TokenProvenance) -> AcceptanceProfile:
        """Where to count how speculations of that kind are accepted."""
        return self._guesses.get(drafted_as, self.drafts)

    def worth(self, kind: TokenProvenance, length: int, batch: int) -> GuessWorth:
        """How many of `length` guessed tokens to verify for one of `batch` sequences: none where they do not pay."""
        none = GuessWorth(1.0, 0, kind)
        plain_ns = self.forward.expect_ns(batch)
        if self._fixed is not None or length == 0 or not plain_ns:
            return none
        tokens = self._guesses[kind].expected_tokens_up_to(length)
        best = max(
            GuessWorth(
                (batch - 1 + tokens[count]) / batch * plain_ns / self.forward.expect_ns(batch + count), count, kind
            )
            for count in range(1, length + 1)
        )
        return best if best.gain > _HYSTERESIS else none


def _steady(after_hit: float, after_miss: float) -> float:
    """The fixed point of the hit rate, for measured rates that may both be extreme."""
    return steady_hit_rate(min(after_hit, 0.999), after_miss)


def _between(values: Sequence[float], place: float) -> float:
    """Straight lines between values[0], values[1], ..; `place` is in their range."""
    left = min(int(place), len(values) - 2)
    return values[left] + (values[left + 1] - values[left]) * (place - left)
