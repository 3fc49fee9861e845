from __future__ import annotations

import random

import pytest

from saguaro.core.acceptance_profile import AcceptanceProfile


def test_without_data_every_place_has_the_prior() -> None:
    profile = AcceptanceProfile(4, prior=0.6)
    assert profile.rates(4) == pytest.approx([0.6] * 4)
    assert profile.rate == pytest.approx(0.6)
    assert profile.expected_tokens(0) == 1.0


def test_each_place_learns_its_own_rate() -> None:
    profile, source = AcceptanceProfile(3), random.Random(1)
    true_rates = [0.9, 0.5, 0.2]
    for _ in range(3000):
        accepted = 0
        while accepted < 3 and source.random() < true_rates[accepted]:
            accepted += 1
        profile.observe(accepted, 3)
    # The last hundred rounds or so count: three standard deviations of 45 trials, the least at the third place.
    assert profile.rates(3) == pytest.approx(true_rates, abs=0.22)
    assert profile.rates(1)[0] == pytest.approx(0.9, abs=0.1)


def test_outcome_probabilities_sum_to_one_and_expected_tokens_is_their_mean() -> None:
    profile = AcceptanceProfile(5)
    for accepted in (0, 3, 5, 2, 5, 1):
        profile.observe(accepted, 5)
    probabilities = profile.outcome_probabilities(5)
    assert sum(probabilities) == pytest.approx(1.0)
    mean = sum((k + 1) * probability for k, probability in enumerate(probabilities))
    assert profile.expected_tokens(5) == pytest.approx(mean)


def test_a_place_never_reached_leans_on_the_one_before() -> None:
    profile = AcceptanceProfile(8)
    for _ in range(200):
        profile.observe(0, 2)
    rates = profile.rates(8)
    assert rates[0] < 0.05
    assert all(rate <= 0.06 for rate in rates)


def test_a_cut_speculation_says_nothing_of_the_places_that_it_lacks() -> None:
    profile = AcceptanceProfile(4, prior=0.5)
    for _ in range(50):
        profile.observe(1, 1)
    assert profile._trials[1:] == [0.0, 0.0, 0.0]
