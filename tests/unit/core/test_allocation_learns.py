"""Hit rates of fan-outs on outcomes of the law of emulated pairs: uniform, geometric, and learnt as rounds go by.

Outcomes are drawn with fixed seeds, so a test passes always or never; rates over 20 x 1000 rounds have a standard error
below 0.003, and what is asserted leaves 0.006.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from saguaro.core.fan_out import geometric_fan_out
from saguaro.core.rank_histogram import OutcomeStatistics

SEEDS = range(20)
ROUNDS = 1000
NOISE = 0.006
FanOut = tuple[int, ...]


@dataclass(frozen=True)
class World:
    """Acceptance rate a and miss exponent r, as `engine.emulated_law` has them."""

    a: float
    r: float

    def outcome(self, source: random.Random, lookahead: int) -> tuple[int, int]:
        """(k, rank of the bonus token among the candidates there, the drafted one left out)."""
        accepted = 0
        while accepted < lookahead and source.random() < self.a:
            accepted += 1
        place = max(math.ceil(source.random() ** (-1 / self.r)) - 1, 1)
        if accepted == lookahead:
            return accepted, 1 if source.random() < self.a else place + 1
        return accepted, place


PAPER = World(0.84, 1.4)
WEAK = World(0.6, 0.8)


def hit_rate(
    choose: Callable[[], FanOut],
    world: World,
    lookahead: int,
    source: random.Random,
    learner: OutcomeStatistics | None = None,
    rounds: int = ROUNDS,
) -> float:
    hits = 0
    for _ in range(rounds):
        fan_out = choose()
        accepted, rank = world.outcome(source, lookahead)
        hits += rank <= fan_out[accepted]
        if learner is not None:
            learner.observe(accepted, lookahead, rank if rank <= 17 else None)
    return hits / rounds


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def chosen_by(statistics: OutcomeStatistics, lookahead: int, budget: int) -> Callable[[], FanOut]:
    return lambda: statistics.allocation(lookahead, budget).fan_out


def learner(a: float = 0.5, r: float = 0.5) -> OutcomeStatistics:
    return OutcomeStatistics(max_lookahead=16, max_rank=64, acceptance_prior=a, miss_exponent=r)


def of_fixed(fan_out: FanOut, world: World, lookahead: int) -> float:
    return mean([hit_rate(lambda: fan_out, world, lookahead, random.Random(seed)) for seed in SEEDS])


def uniform(lookahead: int, budget: int) -> FanOut:
    each, rest = divmod(budget, lookahead + 1)
    return tuple(each + (place < rest) for place in range(lookahead + 1))


@pytest.mark.parametrize(("lookahead", "budget"), [(4, 8), (7, 24), (8, 32)])
@pytest.mark.parametrize("world", [PAPER, WEAK], ids=["paper", "weak"])
def test_the_learnt_fan_out_is_as_good_as_the_better_of_uniform_and_geometric(
    world: World, lookahead: int, budget: int
) -> None:
    after = []
    for seed in SEEDS:
        source, learnt = random.Random(seed), learner()
        choose = chosen_by(learnt, lookahead, budget)
        hit_rate(choose, world, lookahead, source, learnt, 200)
        after.append(hit_rate(choose, world, lookahead, source, learnt))
    even = of_fixed(uniform(lookahead, budget), world, lookahead)
    geometric = of_fixed(geometric_fan_out(lookahead, budget, world.a, world.r), world, lookahead)
    print(f"K {lookahead} B {budget} {world}: uniform {even:.3f} geometric {geometric:.3f} learnt {mean(after):.3f}")
    assert mean(after) > max(even, geometric) - NOISE


@pytest.mark.parametrize(("lookahead", "budget"), [(4, 8), (7, 24)])
def test_geometric_beats_uniform_at_equal_budget(lookahead: int, budget: int) -> None:
    for world in (PAPER, WEAK):
        geometric = of_fixed(geometric_fan_out(lookahead, budget, world.a, world.r), world, lookahead)
        assert geometric > of_fixed(uniform(lookahead, budget), world, lookahead) - NOISE
    assert of_fixed(geometric_fan_out(lookahead, budget, WEAK.a, WEAK.r), WEAK, lookahead) > (
        of_fixed(uniform(lookahead, budget), WEAK, lookahead) + NOISE
    )


@pytest.mark.parametrize(("a", "r"), [(0.05, 0.2), (0.99, 4.0)], ids=["far too low", "far too high"])
def test_a_world_misjudged_at_the_start_is_learnt_within_a_hundred_rounds(a: float, r: float) -> None:
    lookahead, budget, early = 7, 24, []
    for seed in SEEDS:
        source, learnt = random.Random(seed), learner(a, r)
        choose = chosen_by(learnt, lookahead, budget)
        hit_rate(choose, PAPER, lookahead, source, learnt, 100)
        early.append(hit_rate(choose, PAPER, lookahead, source, learnt, 300))
    misjudged = of_fixed(geometric_fan_out(lookahead, budget, a, r), PAPER, lookahead)
    right = of_fixed(geometric_fan_out(lookahead, budget, PAPER.a, PAPER.r), PAPER, lookahead)
    print(f"misjudged for ever {misjudged:.3f}, right from the start {right:.3f}, learnt {mean(early):.3f}")
    assert mean(early) > right - 0.015
    assert mean(early) > misjudged + NOISE


def test_a_world_that_drifts_is_followed() -> None:
    lookahead, budget, after = 7, 24, []
    for seed in SEEDS:
        source, learnt = random.Random(seed), learner()
        choose = chosen_by(learnt, lookahead, budget)
        hit_rate(choose, PAPER, lookahead, source, learnt, 600)
        hit_rate(choose, WEAK, lookahead, source, learnt, 200)
        after.append(hit_rate(choose, WEAK, lookahead, source, learnt))
    stale = of_fixed(geometric_fan_out(lookahead, budget, PAPER.a, PAPER.r), WEAK, lookahead)
    right = of_fixed(geometric_fan_out(lookahead, budget, WEAK.a, WEAK.r), WEAK, lookahead)
    print(f"after the drift: for the old world {stale:.3f}, for the new one {right:.3f}, learnt {mean(after):.3f}")
    assert mean(after) > max(stale, right) - NOISE
