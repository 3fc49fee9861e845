"""C is tuned to the most tokens per second of a simulated pair, and stays where nothing better is.

The simulated pair is noisy, by a generator with fixed seeds. Of 30 seeds tried when written all had the best C after
20,000 steps, in both responses; from then on tuning cost 0.5 % of the best speed on average and 1.2 % at most.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from saguaro.core.scaling_tuner import SCALES, ScalingTuner

STEP_NS = 20_000_000
ONE_IS_BEST = {1.0: 120.0, 0.8: 114.0, 0.5: 100.0, 0.2: 80.0, 0.0: 68.0}
HALF_IS_BEST = {1.0: 100.0, 0.8: 108.0, 0.5: 116.0, 0.2: 104.0, 0.0: 70.0}
ALL_ALIKE = dict.fromkeys(SCALES, 100.0)

Load = Callable[[int], float]  # step -> factor on the speed


def steady(step: int) -> float:
    return 1.0


def run(
    tuner: ScalingTuner, response: Mapping[float, float], num_steps: int, seed: int = 0, load: Load = steady
) -> float:
    """Steps of a pair that makes so many tokens a second with each C; returns the mean speed.

    A step emits 1 to 5 tokens, so that a step's speed varies by about half of itself, and drafts lag by two steps.
    """
    generator = random.Random(seed)
    scales = [tuner.scale] * 2
    tokens, took = 0, 0.0
    for step in range(num_steps):
        scales.append(tuner.scale)
        num_tokens = generator.randint(1, 5)
        took_ns = 3.0 / (response[scales[step]] * load(step)) * 1e9 * generator.uniform(0.9, 1.1)
        tuner.observe(num_tokens, int(took_ns))
        tokens += num_tokens
        took += took_ns
    return 1e9 * tokens / took


def test_it_starts_with_one() -> None:
    assert ScalingTuner().scale == ScalingTuner().champion == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_one_stays_where_one_is_best_and_trying_others_costs_little(seed: int) -> None:
    tuner = ScalingTuner()
    run(tuner, ONE_IS_BEST, 10_000, seed)
    assert tuner.champion == 1.0
    assert run(tuner, ONE_IS_BEST, 40_000, seed) > 0.97 * ONE_IS_BEST[1.0]


@pytest.mark.parametrize("seed", range(5))
def test_a_half_is_found_where_it_is_best(seed: int) -> None:
    tuner = ScalingTuner()
    run(tuner, HALF_IS_BEST, 20_000, seed)
    assert tuner.champion == 0.5
    assert run(tuner, HALF_IS_BEST, 40_000, seed) > 0.97 * HALF_IS_BEST[0.5]


def test_it_follows_when_another_c_becomes_the_best() -> None:
    tuner = ScalingTuner()
    run(tuner, HALF_IS_BEST, 20_000)
    assert tuner.champion == 0.5
    run(tuner, ONE_IS_BEST, 60_000)
    assert tuner.champion == 1.0


def test_a_load_that_comes_and_goes_does_not_look_like_a_gain() -> None:
    tuner = ScalingTuner()
    run(tuner, ONE_IS_BEST, 20_000, load=lambda step: 1.0 + 0.3 * math.sin(step / 300))
    assert tuner.champion == 1.0


def test_where_c_makes_no_difference_it_seldom_moves() -> None:
    # By chance a challenger may win: of 30 seeds tried when written, 5 had left C = 1 after so many steps.
    tuner, champions = ScalingTuner(), [1.0]
    for part in range(200):
        run(tuner, ALL_ALIKE, 100, seed=part)
        if tuner.champion != champions[-1]:
            champions.append(tuner.champion)
    assert len(champions) <= 2


def test_a_gain_below_the_least_is_not_taken() -> None:
    tuner = ScalingTuner()
    run(tuner, ALL_ALIKE | {0.5: 101.0}, 20_000, seed=1)
    assert tuner.champion == 1.0


def test_steps_that_emit_nothing_extend_the_window() -> None:
    tuner = ScalingTuner()
    for _ in range(200):
        tuner.observe(0, STEP_NS)
    assert tuner.scale == 1.0
