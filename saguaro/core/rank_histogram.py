"""Which of the draft's candidates the bonus token turned out to be, and the fan-out that follows from it.

Beyond the paper: the speculator sees at each commit the rank that the true bonus token had among its candidates. The
measured ranks replace the power law of `fan_out` as they come in; the law is the prior.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from saguaro.core.acceptance_profile import AcceptanceProfile
from saguaro.core.fan_out import miss_probability

_DECAY = 0.99
_PRIOR_TRIALS = 32.0  # the law is worth as much as so many ranks
_FIRST_TRIALS = 4.0
_EXPONENTS = tuple(0.2 * 1.15**step for step in range(22))  # 0.2 to 3.8
_LARGEST_WEIGHT = 1e100
_MOST_ROUNDS_AN_ALLOCATION = 8


class RankHistogram:
    """Decayed counts of the bonus token's rank, from 1; ranks beyond `max_rank` count as not guessed.

    Where counts are few, the power law of `fan_out` stands in, with the exponent that makes the ranks so far likeliest;
    `miss_exponent` is where that begins.
    """

    def __init__(self, max_rank: int, miss_exponent: float) -> None:
        self._counts = [0.0] * max_rank
        self._trials = 0.0
        self._weight = 1.0  # of the next count; it grows where the old ones would shrink
        self._exponents = sorted({*_EXPONENTS, miss_exponent})
        # For each exponent: P(rank) for 1 .. max_rank and, last, of any beyond.
        self._laws = [_rank_law(max_rank, exponent) for exponent in self._exponents]
        self._log_laws = [[math.log(p) for p in law] for law in self._laws]
        first = self._laws[self._exponents.index(miss_exponent)]
        self._log_likelihoods = [
            _FIRST_TRIALS * sum(p * log_q for p, log_q in zip(first, log_law, strict=True))
            for log_law in self._log_laws
        ]

    def observe(self, rank: int | None) -> None:
        """The bonus token was the candidate of that rank; None when it was not among them."""
        is_known = rank is not None and rank <= len(self._counts)
        self._trials = self._trials * _DECAY + 1.0
        self._weight /= _DECAY
        if rank is not None and is_known:
            self._counts[rank - 1] += self._weight
        if self._weight > _LARGEST_WEIGHT:
            self._counts = [count / self._weight for count in self._counts]
            self._weight = 1.0
        place = rank - 1 if rank is not None and is_known else len(self._counts)
        self._log_likelihoods = [
            _DECAY * known + log_law[place]
            for known, log_law in zip(self._log_likelihoods, self._log_laws, strict=True)
        ]

    @property
    def _likeliest(self) -> int:
        return max(range(len(self._exponents)), key=self._log_likelihoods.__getitem__)

    def gains(self) -> list[float]:
        """P(the bonus token has rank F) for F = 1 .. max_rank, made non-increasing.

        A later candidate is never prepared without the ones before it, so its gain counts only together with theirs.
        """
        weight = self._trials + _PRIOR_TRIALS
        law = self._laws[self._likeliest]
        return _non_increasing(
            [
                (count / self._weight + prior * _PRIOR_TRIALS) / weight
                for count, prior in zip(self._counts, law, strict=False)
            ]
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Outcomes to prepare for each number of accepted tokens, and the share of rounds that one of them should meet."""

    fan_out: tuple[int, ...]
    hit_rate: float


class OutcomeStatistics:
    """What one draft's guesses were worth: acceptance by place and ranks, for one kind of round.

    `ranks_after_rejection` are those of k < K, where the drafted token is excluded; `ranks_after_all` those of k = K.
    """

    def __init__(self, *, max_lookahead: int, max_rank: int, acceptance_prior: float, miss_exponent: float) -> None:
        self.acceptance = AcceptanceProfile(max_lookahead, acceptance_prior)
        self.ranks_after_rejection = RankHistogram(max_rank, miss_exponent)
        self.ranks_after_all = RankHistogram(max_rank, miss_exponent)
        self._allocations: dict[tuple[int, int], Allocation] = {}
        self._num_rounds = self._renew_at = 0

    def observe(self, num_accepted: int, num_draft: int, rank: int | None) -> None:
        """A round's outcome, and the rank of its bonus token among the candidates of that place."""
        self.acceptance.observe(num_accepted, num_draft)
        (self.ranks_after_all if num_accepted == num_draft else self.ranks_after_rejection).observe(rank)
        self._num_rounds += 1
        if self._num_rounds >= self._renew_at:  # every round at first, ever less news later
            self._allocations.clear()
            self._renew_at = self._num_rounds + min(1 + self._num_rounds // 4, _MOST_ROUNDS_AN_ALLOCATION)

    def allocation(self, lookahead: int, budget: int) -> Allocation:
        """F_0 .. F_K that sum to at most `budget`: each unit goes to the outcome with the largest gain."""
        key = (lookahead, budget)
        if key not in self._allocations:
            probabilities = self.acceptance.outcome_probabilities(lookahead)
            gains = [self.ranks_after_rejection.gains()] * lookahead + [self.ranks_after_all.gains()]
            fan_out = allocate(probabilities, gains, budget)
            hit_rate = sum(p * sum(row[:count]) for p, row, count in zip(probabilities, gains, fan_out, strict=True))
            self._allocations[key] = Allocation(fan_out, hit_rate)
        return self._allocations[key]


def allocate(
    probabilities: Sequence[float],  # [K + 1]: P(k)
    gains: Sequence[Sequence[float]],  # [K + 1][ranks], each non-increasing: P(bonus has that rank | k)
    budget: int,
) -> tuple[int, ...]:
    """Hand the budget out one by one to the k with the largest P(k) * gain; optimal since gains do not increase."""
    fan_out = [0] * len(probabilities)
    # Largest gain first; among equals the smaller k.
    queue = [(-p * row[0], k) for k, (p, row) in enumerate(zip(probabilities, gains, strict=True)) if row]
    heapq.heapify(queue)
    for _ in range(budget):
        if not queue:
            break
        _, k = queue[0]
        fan_out[k] += 1
        if fan_out[k] < len(gains[k]):
            heapq.heapreplace(queue, (-probabilities[k] * gains[k][fan_out[k]], k))
        else:
            heapq.heappop(queue)
    return tuple(fan_out)


def _non_increasing(values: Sequence[float]) -> list[float]:
    """Closest non-increasing sequence in least squares (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []  # mean, size
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] < mean:
            other, other_size = pools.pop()
            mean, size = (mean * size + other * other_size) / (size + other_size), size + other_size
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


def _rank_law(max_rank: int, exponent: float) -> list[float]:
    """P(rank) of 1 .. max_rank by the power law, and P(beyond)."""
    misses = [miss_probability(rank, exponent) for rank in range(max_rank + 1)]
    return [*(before - after for before, after in itertools.pairwise(misses)), misses[-1]]
