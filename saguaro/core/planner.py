"""Chooses, online and from measurements alone, how far to speculate and what a miss does.

Every few steps the plan that promises most tokens a second is taken: lookahead K (0 included: plain decoding, the same
code path) and, by b*, whether a sequence that missed waits for a just-in-time speculation. The formulas are those of
docs of the algorithm: a round emits E(K) = 1 + sum of prod a_i tokens and costs the target's forward at its rows, plus
the wait where it waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from saguaro.core.acceptance_profile import AcceptanceProfile
from saguaro.core.cost_model import fallback_batch_size
from saguaro.core.forward_time import ForwardTime

_STEPS_A_PLAN = 8
_LEAST_TOKENS = 1.2  # of a round with one draft token
_HYSTERESIS = 1.02  # another plan must promise this much more than the one in force
_PROBE_EVERY = 64  # steps of plain decoding between two looks at whether speculation pays by now
_PROBE_STEPS = 3
_PROBE_LOOKAHEAD = 2
_DECAY = 0.05
_WHOLE = 0.9  # hits that reach this share of the lookahead are not cut by the draft's speed


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


class Planner:
    """Measurements in, plans out. Pure: time comes in as values."""

    def __init__(self, *, max_lookahead: int, start_lookahead: int, fixed: FixedPolicy | None = None) -> None:
        self.forward = ForwardTime()
        self.drafts = AcceptanceProfile(max(max_lookahead, 1))
        self.ngrams = AcceptanceProfile(max(max_lookahead, 1), prior=0.3)
        self._max_lookahead = max_lookahead
        self._fixed = fixed
        self._hit_rate = 0.5
        self._hit_depth = 0.0  # mean length of a hit's speculation
        self._just_in_time_ns = 0.0  # of one speculation, per token and the extend before it
        self._steps = 0
        start = min(start_lookahead, max_lookahead)
        self._plan = Plan(start, waits_on_miss=True, break_even_batch=math.inf, just_in_time_lookahead=start)

    # --- measurements -------------------------------------------------------------------------------------------------

    def observe_lookup(self, *, hit: bool, depth: int) -> None:
        """A lookup: whether it hit, and how long the speculation was."""
        self._hit_rate += ((1.0 if hit else 0.0) - self._hit_rate) * _DECAY
        if hit:
            self._hit_depth += (depth - self._hit_depth) * (_DECAY if self._hit_depth else 1.0)

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
        if self._plan.lookahead == 0 and self._steps % _PROBE_EVERY < _PROBE_STEPS:
            return self._probe()
        if self._steps % _STEPS_A_PLAN == 0 and batch > 0:
            self._plan = self._best(batch)
        return self._plan

    def _probe(self) -> Plan:
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
        p = self._hit_rate
        hit_lookahead = lookahead
        if self._hit_depth < _WHOLE * self._plan.lookahead:
            hit_lookahead = min(lookahead, max(round(self._hit_depth), 1))
        tokens = self.drafts.expected_tokens_up_to(lookahead)
        tokens_hit = tokens[hit_lookahead]
        slow, length, waits_ns, verify_ns = max(
            self._slow(length, tokens, tokens_hit, batch * (1 + p * hit_lookahead + (1 - p) * length))
            for length in range(1, lookahead + 1)
        )
        threshold = math.inf
        if waits_ns:
            threshold = fallback_batch_size(p, tokens[length], tokens_hit, 1.0, waits_ns / verify_ns)
        fast = (p * tokens_hit + (1 - p)) / self.forward.expect_ns(batch * (1 + p * hit_lookahead))
        waits = batch < threshold
        return Plan(lookahead, waits, threshold, length, 1e9 * (slow if waits else fast), plain_rate)

    def _slow(
        self, length: int, tokens: Sequence[float], tokens_hit: float, rows: float
    ) -> tuple[float, int, float, float]:
        """Tokens a nanosecond where misses wait for `length` tokens; and `length`, the wait, and the verification."""
        waits_ns, verify_ns = self._just_in_time_ns * (length + 1), self.forward.expect_ns(rows)
        p = self._hit_rate
        rate = (p * tokens_hit + (1 - p) * tokens[length]) / (verify_ns + (1 - p) * waits_ns)
        return rate, length, waits_ns, verify_ns

    def ngrams_pay(self, length: int, batch: int) -> bool:
        """Whether verifying that many guessed tokens for one of `batch` sequences is worth its rows."""
        if self._fixed is not None or length == 0:
            return False
        plain_ns, with_guess_ns = self.forward.expect_ns(batch), self.forward.expect_ns(batch + length)
        gain = (batch - 1 + self.ngrams.expected_tokens(length)) / batch
        return gain * plain_ns > with_guess_ns * _HYSTERESIS
