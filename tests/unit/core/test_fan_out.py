"""Fan-out: exactly optimal on small budgets, the paper's geometric law on large ones."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saguaro.core.fan_out import candidates_for, geometric_fan_out, miss_probability, outcome_probabilities

RATES = [0.0, 0.2, 0.5, 0.8, 0.93, 1.0]
EXPONENTS = [0.3, 1.0, 2.5]


def hit_probability(fan_out: tuple[int, ...], acceptance_rate: float, miss_exponent: float) -> float:
    probabilities = outcome_probabilities(len(fan_out) - 1, acceptance_rate)
    return sum(p * (1 - miss_probability(f, miss_exponent)) for p, f in zip(probabilities, fan_out, strict=True))


@pytest.mark.parametrize("acceptance_rate", RATES)
@pytest.mark.parametrize("miss_exponent", EXPONENTS)
@pytest.mark.parametrize("lookahead", range(5))
def test_no_other_allocation_of_the_budget_hits_more_often(
    lookahead: int, acceptance_rate: float, miss_exponent: float
) -> None:
    for budget in range(9):
        ours = geometric_fan_out(lookahead, budget, acceptance_rate, miss_exponent)
        assert len(ours) == lookahead + 1
        assert sum(ours) == budget
        best = max(
            hit_probability(other, acceptance_rate, miss_exponent)
            for other in itertools.product(range(budget + 1), repeat=lookahead + 1)
            if sum(other) == budget
        )
        assert hit_probability(ours, acceptance_rate, miss_exponent) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("acceptance_rate", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("miss_exponent", EXPONENTS)
def test_a_large_budget_follows_theorem_12(acceptance_rate: float, miss_exponent: float) -> None:
    lookahead, budget = 4, 4000
    weights = [acceptance_rate ** (k / (1 + miss_exponent)) for k in range(lookahead + 1)]
    weights[-1] *= (1 - acceptance_rate) ** (-1 / (1 + miss_exponent))
    for count, weight in zip(
        geometric_fan_out(lookahead, budget, acceptance_rate, miss_exponent), weights, strict=True
    ):
        assert count == pytest.approx(budget * weight / sum(weights), rel=0.05)


@pytest.mark.parametrize("miss_exponent", EXPONENTS)
def test_a_better_draft_moves_the_budget_from_the_first_position_to_the_last(miss_exponent: float) -> None:
    allocations = [geometric_fan_out(4, 24, rate / 100, miss_exponent) for rate in range(101)]
    first, last = [fan_out[0] for fan_out in allocations], [fan_out[-1] for fan_out in allocations]
    assert first == sorted(first, reverse=True)
    assert last == sorted(last)
    assert (first[0], last[-1]) == (24, 24)


@pytest.mark.parametrize("acceptance_rate", RATES)
def test_without_lookahead_all_of_the_budget_goes_to_the_only_outcome(acceptance_rate: float) -> None:
    assert geometric_fan_out(0, 7, acceptance_rate, 1.0) == (7,)


@pytest.mark.parametrize("acceptance_rate", RATES)
@pytest.mark.parametrize("lookahead", [0, 1, 5])
def test_outcome_probabilities_sum_to_one(lookahead: int, acceptance_rate: float) -> None:
    assert sum(outcome_probabilities(lookahead, acceptance_rate)) == pytest.approx(1.0)


@pytest.mark.parametrize("arguments", [(-1, 1, 0.5, 1.0), (1, -1, 0.5, 1.0), (1, 1, 1.1, 1.0), (1, 1, 0.5, 0.0)])
def test_values_out_of_range_are_errors(arguments: tuple[int, int, float, float]) -> None:
    with pytest.raises(ValueError, match="not"):
        geometric_fan_out(*arguments)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 20), unique=True), st.none() | st.integers(0, 20), st.integers(0, 8))
def test_candidates_are_the_best_ones_without_the_drafted_token(
    ranked: list[int], drafted: int | None, count: int
) -> None:
    candidates = candidates_for(ranked, drafted, count)
    allowed = [token for token in ranked if token != drafted]
    assert list(candidates) == allowed[:count]
    assert len(candidates) == min(count, len(ranked) - (drafted in ranked))
