"""Draws by inversion: the uniform is that of the counter alone, the pick has the law of the weights."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest  # type: ignore[import-untyped]
from torch import Tensor

from saguaro.core.draws import pick, uniform
from saguaro.core.noise import NoiseDomain, philox_4x32
from tests.unit.core.law import assert_follows

DRAWS = 100_000
ONES = 0xFFFFFFFF
FIXED = [0.3026603452957449, 0.2809115403464971, 0.2733643276510359, 0.5016722938574215]


def draws(
    *, seed: int = 7, choice: int = 0, first_position: int = 0, domain: NoiseDomain = NoiseDomain.ACCEPTANCE
) -> Tensor:  # [DRAWS] over positions
    positions = torch.arange(first_position, first_position + DRAWS)
    return uniform(torch.full_like(positions, seed), torch.full_like(positions, choice), positions, domain)


def test_the_uniform_is_52_bits_of_the_counter_position_choice_domain() -> None:
    seed, choice, position, domain = 2**64 - 2, 3, 100_000, NoiseDomain.BONUS
    words = philox_4x32(torch.tensor([[0, position, choice, int(domain)]]), torch.tensor([[seed & ONES, seed >> 32]]))[
        0
    ].tolist()
    value = uniform(torch.tensor([seed - 2**64]), torch.tensor([choice]), torch.tensor([position]), domain).item()
    assert value == ((words[0] << 20) + (words[1] >> 12) + 0.5) / 2**52


def test_fixed_uniforms_never_change() -> None:
    values = uniform(
        torch.tensor([0, 1, -1, -(2**63)]),
        torch.tensor([0, 0, 3, 0]),
        torch.tensor([0, 7, 100_000, ONES]),
        torch.tensor([3, 4, 5, 6]),
    )
    assert values.tolist() == FIXED


@pytest.mark.parametrize("seed", [0, -1, 0x0123456789ABCDEF])
@pytest.mark.parametrize("domain", [NoiseDomain.DRAFT, NoiseDomain.ACCEPTANCE, NoiseDomain.RESIDUAL, NoiseDomain.BONUS])
def test_uniforms_are_uniform_over_positions(seed: int, domain: NoiseDomain) -> None:
    # Kolmogorov-Smirnov, twelve times at 1e-5: a false alarm once in 8,000 choices of the seeds.
    assert kstest(draws(seed=seed, domain=domain).numpy(), "uniform").pvalue > 1e-5


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(draws(seed=8), id="next seed"),
        pytest.param(draws(choice=1), id="next choice"),
        pytest.param(draws(first_position=1), id="next position"),
        pytest.param(draws(domain=NoiseDomain.DRAFT), id="draft"),
        pytest.param(draws(domain=NoiseDomain.RESIDUAL), id="residual"),
        pytest.param(draws(domain=NoiseDomain.BONUS), id="bonus"),
    ],
)
def test_uniforms_do_not_correlate_with_those_of_another(other: Tensor) -> None:
    # A correlation of independent draws is normal with deviation 1 / sqrt(DRAWS); 5 deviations: 6e-7 each.
    assert abs(torch.corrcoef(torch.stack((draws(), other)))[0, 1].item()) < 5 / math.sqrt(DRAWS)


def test_picks_follow_the_weights_whatever_their_sum() -> None:
    weights = torch.tensor([0.0, 3.0, 0.5, 0.0, 1.5, 2.0, 0.0], dtype=torch.float64)
    picked = pick(weights.expand(DRAWS, -1), draws())
    assert_follows(picked.bincount(minlength=7).numpy(), (weights / 7).numpy())


@pytest.mark.parametrize("total", [1.0, 1.0 + 2.0**-52, 1.5, 2.0 - 2.0**-52, 3e-9])
def test_the_extreme_uniforms_pick_what_has_weight(total: float) -> None:
    weights = torch.tensor([[0.0, total, 0.0]] * 2, dtype=torch.float64)
    assert pick(weights, torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [1, 1]
