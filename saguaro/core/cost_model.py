"""How fast speculation should be, from what its parts cost: the formulas that are printed beside each measurement.

Theorem 7 and the fixed point of the hit rate are those of "Speculative Speculative Decoding" (arXiv 2603.03251); tokens
per round of synchronous speculative decoding (SD) are equation 1 of Leviathan et al. (arXiv 2211.17192). Times are in
seconds unless a name says "in units of one verification". Nothing here is fitted: what goes in is measured or assumed
by the caller, what comes out is a bound that leaves out all of our own work between the forwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """What drafting costs: `extend`, the causal forward that ends with a first token, and `step`, one token more."""

    extend: float
    step: float

    def just_in_time(self, lookahead: int) -> float:
        """T_b: K tokens for one known outcome; the extend yields the first of them."""
        return self.extend + max(lookahead - 1, 0) * self.step if lookahead else 0.0

    def pre_speculation(self, lookahead: int) -> float:
        """T_p: K tokens for each guessed outcome; the extend yields the guesses, a step one token of all branches."""
        return self.extend + lookahead * self.step


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds of a round's parts: verifying K + 1 rows, T_p of a whole pre-speculation, T_b of one just in time."""

    verify: float
    pre_speculation: float
    just_in_time: float

    @classmethod
    def of(cls, verify: float, draft: DraftTimes, lookahead: int) -> RoundTimes:
        """From a verification's time and the draft's."""
        return cls(verify, draft.pre_speculation(lookahead), draft.just_in_time(lookahead))


def expected_tokens(lookahead: int, acceptance_rate: float) -> float:
    """E(K, a) = 1 + a + .. + a^K = (1 - a^(K+1)) / (1 - a): tokens emitted by a round of K draft tokens.

    Draft tokens are accepted independently with probability a (Leviathan et al., equation 1). ValueError for a outside
    0..1 or K < 0.
    """
    if lookahead < 0:
        raise ValueError(f"lookahead {lookahead} must not be negative")
    _check_probability("acceptance rate", acceptance_rate)
    if acceptance_rate == 1.0:
        return lookahead + 1.0
    return (1.0 - acceptance_rate ** (lookahead + 1)) / (1.0 - acceptance_rate)


def steady_hit_rate(after_hit: float, after_miss: float) -> float:
    """p = h_b / (1 + h_b - h_p): share of rounds that hit, of a chain that hits with h_p after a hit, h_b after a miss.

    The fixed point of p = p h_p + (1 - p) h_b. Where h_p = 1 and h_b = 0 every share is one; ValueError then, and for
    rates outside 0..1.
    """
    _check_probability("hit rate after a hit", after_hit)
    _check_probability("hit rate after a miss", after_miss)
    changes = after_miss + (1.0 - after_hit)
    if changes == 0.0:
        raise ValueError("a chain that always hits after a hit and never after a miss has no one share of hits")
    return after_miss / changes


def speed_up(
    hit_rate: float,
    tokens_after_hit: float,
    tokens_after_miss: float,
    pre_speculation: float,
    just_in_time: float,
) -> float:
    """Theorem 7: speed over plain decoding, [p E_hit + (1-p) E_miss] / [p max(1, T_p) + (1-p)(1 + T_b)].

    T_p and T_b in units of one verification, which is taken to cost as much as a plain forward; E in tokens a round.
    """
    _check_probability("hit rate", hit_rate)
    tokens = hit_rate * tokens_after_hit + (1.0 - hit_rate) * tokens_after_miss
    return tokens / (hit_rate * max(1.0, pre_speculation) + (1.0 - hit_rate) * (1.0 + just_in_time))


def plain_speed(forward: float) -> float:
    """Tokens per second of plain decoding: one token a forward of one row."""
    return 1.0 / forward


def sd_speed(tokens_per_round: float, times: RoundTimes) -> float:
    """Tokens per second of synchronous SD: every round is drafted, then verified."""
    return tokens_per_round / (times.verify + times.just_in_time)


def ssd_speed(hit_rate: float, tokens_after_hit: float, tokens_after_miss: float, times: RoundTimes) -> float:
    """Tokens per second of SSD: Theorem 7 where verifying K + 1 rows has a price of its own."""
    in_verifications = speed_up(
        hit_rate,
        tokens_after_hit,
        tokens_after_miss,
        times.pre_speculation / times.verify,
        times.just_in_time / times.verify,
    )
    return in_verifications / times.verify


def fallback_batch_size(
    hit_rate: float, tokens_slow: float, tokens_hit: float, tokens_fast: float, just_in_time: float
) -> float:
    """b*: the batch size from which a fast backup beats waiting for drafts just in time; infinite where waiting wins.

    Waiting wins iff E / (1 + T_b (1 - p^b)) > p E_hit + (1-p) E_f, since one miss makes the whole batch wait. Hence
    b* = ln(1 - x) / ln(p) with x = (E / (p E_hit + (1-p) E_f) - 1) / T_b. x >= 1: always wait; x <= 0: never, b* = 0.
    E (`tokens_slow`) and E_f (`tokens_fast`) are tokens per round after slow and fast backup; T_b in units of one
    verification, > 0.
    """
    _check_probability("hit rate", hit_rate)
    if not just_in_time > 0.0:
        raise ValueError(f"just-in-time drafting takes {just_in_time} verifications; it must be positive")
    worth = (tokens_slow / (hit_rate * tokens_hit + (1.0 - hit_rate) * tokens_fast) - 1.0) / just_in_time
    if worth <= 0.0:
        return 0.0
    if worth >= 1.0 or hit_rate == 1.0:
        return math.inf
    # With no hits at all every batch waits for the whole T_b, whatever its size: worth it or not, and here it is not.
    return 0.0 if hit_rate == 0.0 else math.log(1.0 - worth) / math.log(hit_rate)


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value} is not in 0..1")
