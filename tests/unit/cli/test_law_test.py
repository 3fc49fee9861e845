"""The chi-square test of two samples: its tail is scipy's, it alarms as often as it says, and it sees another law."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from saguaro.cli.law_test import chi_square_tail, common_prefixes, same_law


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 40, 400])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0])
def test_the_tail_is_that_of_scipy(degrees: int, ratio: float) -> None:
    expected = float(stats.chi2.sf(ratio * degrees, degrees))
    assert chi_square_tail(ratio * degrees, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_the_statistic_is_pearsons_for_two_rows() -> None:
    one, other = ["a"] * 30 + ["b"] * 50 + ["c"] * 20, ["a"] * 70 + ["b"] * 60 + ["c"] * 20
    expected = stats.chi2_contingency(np.array([[30, 50, 20], [70, 60, 20]]), correction=False)
    test = same_law(one, other)
    assert (test.statistic, test.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert test.degrees_of_freedom == 2


def test_rare_outcomes_count_as_one_cell() -> None:
    one, other = ["a"] * 90 + [f"x{i}" for i in range(10)], ["a"] * 90 + [f"y{i}" for i in range(10)]
    test = same_law(one, other)
    assert (test.statistic, test.degrees_of_freedom) == (0.0, 1)


def test_a_single_outcome_tells_nothing() -> None:
    assert same_law(["a"] * 50, ["a"] * 60).p_value == 1.0


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="samples of 0 and 1 outcomes"):
        same_law([], ["a"])


def test_samples_of_one_law_alarm_as_often_as_the_level_says() -> None:
    # 2,000 pairs at level 5 %: 100 +- 10 alarms. Fixed seed; for another the bounds fail once in 10,000 (4 sigma).
    generator = random.Random(5)
    weights = [2.0**-k for k in range(1, 12)]
    draw = lambda: generator.choices(range(11), weights, k=300)  # noqa: E731
    alarms = sum(same_law(draw(), draw()).p_value < 0.05 for _ in range(2000))
    assert 60 <= alarms <= 140


def test_another_law_is_seen() -> None:
    # Total variation 0.1, 2,000 draws each: p is below 1e-3 in all but one of 10**8 draws.
    generator = random.Random(6)
    one = generator.choices("abc", (0.5, 0.3, 0.2), k=2000)
    other = generator.choices("abc", (0.4, 0.3, 0.3), k=2000)
    assert same_law(one, other).p_value < 1e-3


def test_prefixes_keep_answers_that_end_sooner() -> None:
    assert common_prefixes([(1, 2, 3), (1,)], 2) == [(1, 2), (1,)]
