from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saguaro.core.fan_out import geometric_fan_out
from saguaro.core.rank_histogram import OutcomeStatistics, RankHistogram, allocate


def statistics(acceptance_prior: float = 0.5, miss_exponent: float = 0.5) -> OutcomeStatistics:
    return OutcomeStatistics(
        max_lookahead=8, max_rank=32, acceptance_prior=acceptance_prior, miss_exponent=miss_exponent
    )


@pytest.mark.parametrize("lookahead", [0, 1, 4, 6])
@pytest.mark.parametrize("budget", [1, 8, 24])
def test_without_data_the_fan_out_is_the_geometric_law(lookahead: int, budget: int) -> None:
    assert statistics(0.7, 0.8).allocation(lookahead, budget).fan_out == geometric_fan_out(lookahead, budget, 0.7, 0.8)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=1, max_size=3),
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    st.integers(0, 6),
)
def test_the_allocation_is_the_best_there_is(gains: list[list[float]], weights: list[float], budget: int) -> None:
    falling = [sorted(row, reverse=True) for row in gains]
    probabilities = weights[: len(falling)]

    def value(fan_out: tuple[int, ...]) -> float:
        return sum(p * sum(row[:count]) for p, row, count in zip(probabilities, falling, fan_out, strict=True))

    found = allocate(probabilities, falling, budget)
    assert sum(found) == budget
    every = itertools.product(range(budget + 1), repeat=len(falling))
    assert value(found) == pytest.approx(max(value(item) for item in every if sum(item) == budget))


def test_measured_ranks_replace_a_wrong_prior() -> None:
    """The truth: nearly all is accepted, and the bonus token is nearly always the first candidate."""
    learnt, source = statistics(acceptance_prior=0.3, miss_exponent=0.2), random.Random(0)
    for _ in range(300):
        accepted = 6 if source.random() < 0.9 else source.randrange(6)
        learnt.observe(accepted, 6, 1 if source.random() < 0.95 else 5)

    def true_hit_rate(fan_out: tuple[int, ...]) -> float:
        weights = [0.1 / 6] * 6 + [0.9]
        return sum(p * (0.95 * (count >= 1) + 0.05 * (count >= 5)) for p, count in zip(weights, fan_out, strict=True))

    prior = statistics(acceptance_prior=0.3, miss_exponent=0.2).allocation(6, 8).fan_out
    assert true_hit_rate(prior) < 0.1
    assert true_hit_rate(learnt.allocation(6, 8).fan_out) > 0.9


def test_a_token_that_was_not_among_the_candidates_lowers_all_gains() -> None:
    seen, unseen = RankHistogram(8, 0.5), RankHistogram(8, 0.5)
    for _ in range(20):
        seen.observe(1)
        unseen.observe(None)
    assert sum(unseen.gains()) < 0.5 < sum(seen.gains()) <= 1.0


@given(st.lists(st.one_of(st.none(), st.integers(1, 12)), max_size=60))
def test_gains_never_increase_and_keep_their_sum(ranks: list[int | None]) -> None:
    histogram = RankHistogram(8, 0.7)
    for rank in ranks:
        histogram.observe(rank)
    gains = histogram.gains()
    assert all(first >= second - 1e-12 for first, second in itertools.pairwise(gains))
    assert 0.0 <= sum(gains) <= 1.0 + 1e-9


def test_a_budget_beyond_all_ranks_is_not_forced_out() -> None:
    assert allocate([0.5, 0.5], [[0.5, 0.1], [0.9, 0.2]], 10) == (2, 2)
