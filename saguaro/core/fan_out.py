"""How many bonus tokens to prepare for each number of accepted draft tokens.

Theorem 12 of "Speculative Speculative Decoding" (arXiv 2603.03251): with acceptance rate a, outcome "exactly k
accepted" has probability P(k) = a^k (1 - a), and P(K) = a^K; F candidates miss with probability F^-r; maximising
sum P(k) (1 - F_k^-r) over real F_k that sum to B gives the geometric law F_k proportional to P(k)^(1 / (1 + r)).

Here the miss law is (1 + F)^-r. It agrees with the paper's for large F; at F = 0 it is 1, where the paper's is
infinite, and at F = 1 it is 2^-r, where the paper's is 1 and makes the best candidate worth nothing. Each further
candidate then gains less than the one before, so the objective is separable and concave: giving out the budget one by
one, each to the k that gains most, is exactly optimal over whole numbers, and there is nothing to round.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from saguaro.types import VerificationOutcome


@functools.lru_cache(maxsize=1024)
def geometric_fan_out(lookahead: int, budget: int, acceptance_rate: float, miss_exponent: float) -> tuple[int, ...]:
    """F_0 .. F_K, whole numbers that sum to `budget`; the smaller k wins a tie.

    `lookahead` is K >= 0, `acceptance_rate` a in 0..1, `miss_exponent` r > 0. Cached: callers that measure `a` should
    round it, so that a new value is worth a new allocation. Raises ValueError outside these ranges.
    """
    if lookahead < 0 or budget < 0:
        raise ValueError(f"lookahead {lookahead} and budget {budget} must not be negative")
    if not 0.0 <= acceptance_rate <= 1.0:
        raise ValueError(f"acceptance rate {acceptance_rate} is not in 0..1")
    if not miss_exponent > 0.0:
        raise ValueError(f"miss exponent {miss_exponent} is not positive")
    probabilities = outcome_probabilities(lookahead, acceptance_rate)
    fan_out = [0] * (lookahead + 1)
    for _ in range(budget):
        gains = [
            probability * (miss_probability(count, miss_exponent) - miss_probability(count + 1, miss_exponent))
            for probability, count in zip(probabilities, fan_out, strict=True)
        ]
        fan_out[gains.index(max(gains))] += 1
    return tuple(fan_out)


def outcome_probabilities(lookahead: int, acceptance_rate: float) -> list[float]:
    """P(exactly k of `lookahead` draft tokens accepted), k = 0 .. lookahead, tokens being accepted independently."""
    rejected_after = [acceptance_rate**k * (1.0 - acceptance_rate) for k in range(lookahead)]
    return [*rejected_after, acceptance_rate**lookahead]


def miss_probability(num_candidates: int, miss_exponent: float) -> float:
    """P(the bonus token is none of the candidates) = (1 + F)^-r."""
    return float((1 + num_candidates) ** -miss_exponent)


def candidates_for(ranked: Sequence[int], drafted: int | None, count: int) -> tuple[int, ...]:
    """The best `count` of `ranked` without the drafted token: it was rejected there, so it cannot be the bonus.

    `drafted` is None after the last draft token, where nothing was rejected. Fewer where `ranked` is too short.
    """
    return tuple(itertools.islice((token_id for token_id in ranked if token_id != drafted), count))


def likely_outcomes(
    ranked: Sequence[Sequence[int]],  # for k = 0 ..: candidates of the bonus token after exactly k accepted, best first
    speculation: Sequence[int],
    fan_out: Sequence[int],
    start: int = 0,
) -> tuple[VerificationOutcome, ...]:
    """The outcomes worth a branch, of every k from `start` on whose candidates are known."""
    return tuple(
        VerificationOutcome(k, bonus)
        for k in range(start, len(ranked))
        for bonus in candidates_for(ranked[k], speculation[k] if k < len(speculation) else None, fan_out[k])
    )


def rank_of_bonus(
    outcome: VerificationOutcome, ranked: Sequence[Sequence[int]], speculation: Sequence[int]
) -> int | None:
    """Rank, from 1, that the bonus token had among the candidates of its place; None if it was not among them."""
    k = outcome.num_accepted
    if k >= len(ranked):
        return None
    candidates = candidates_for(ranked[k], speculation[k] if k < len(speculation) else None, len(ranked[k]))
    return candidates.index(outcome.bonus_token) + 1 if outcome.bonus_token in candidates else None
