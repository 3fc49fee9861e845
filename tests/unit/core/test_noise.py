"""The generator: known answers, uniform, independent in everything that it depends on."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest  # type: ignore[import-untyped]
from torch import Tensor

from saguaro.core import noise
from saguaro.core.noise import NoiseDomain, gumbel, philox_4x32

DRAWS = 100_000
ONES = 0xFFFFFFFF
# kat_vectors of Random123, philox4x32 with 10 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES, ONES, ONES, ONES], [ONES, ONES], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def draws(
    *, seed: int = 7, choice: int = 0, position: int = 11, domain: NoiseDomain = NoiseDomain.HEAD, first_token: int = 0
) -> Tensor:  # [DRAWS] over token ids
    return gumbel(
        torch.tensor([seed]),
        torch.tensor([choice]),
        torch.tensor([position]),
        torch.arange(first_token, first_token + DRAWS),
        domain,
    )


def uniform(values: Tensor) -> Tensor:
    return torch.exp(-torch.exp(-values))


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers_of_random123(counter: list[int], key: list[int], words: list[int]) -> None:
    assert philox_4x32(torch.tensor([counter]), torch.tensor([key])).tolist() == [words]


def test_philox_rows_do_not_depend_on_each_other() -> None:
    counters, keys, words = (torch.tensor(column) for column in zip(*KNOWN_ANSWERS, strict=True))
    assert torch.equal(philox_4x32(counters, keys), words)


def test_the_gumbel_is_that_of_52_bits_of_the_counter_token_position_choice_domain() -> None:
    seed, choice, position, token_id, domain = 2**64 - 2, 3, 100_000, 49_151, NoiseDomain.TAIL
    words = philox_4x32(
        torch.tensor([[token_id, position, choice, int(domain)]]), torch.tensor([[seed & ONES, seed >> 32]])
    )[0].tolist()
    u = ((words[0] << 20) + (words[1] >> 12) + 0.5) / 2**52
    value = gumbel(
        torch.tensor([seed - 2**64]), torch.tensor([choice]), torch.tensor([position]), torch.tensor([token_id]), domain
    ).item()
    assert value == pytest.approx(-math.log(-math.log(u)), rel=1e-14)


def test_fixed_gumbel_vectors_never_change() -> None:
    values = gumbel(
        torch.tensor([0, 1, -1, -(2**63), 12345]),
        torch.tensor([0, 0, 3, 0, 1]),
        torch.tensor([0, 7, 100_000, 2, ONES]),
        torch.tensor([0, 49_151, 5, 1, ONES]),
        torch.tensor([0, 0, 1, 2, 2]),
    )
    fixed = [0.08482025135306255, 2.141436124762373, -0.1486055463242269, 0.965466087152046, 0.2682984298046136]
    assert values.tolist() == pytest.approx(fixed, rel=1e-14)


@pytest.mark.parametrize("word", [0, ONES])
def test_the_gumbel_is_finite_for_the_extreme_words(monkeypatch: pytest.MonkeyPatch, word: int) -> None:
    monkeypatch.setattr(noise, "_philox", lambda counter, key: torch.full_like(counter, word))
    zero = torch.tensor([0])
    assert gumbel(zero, zero, zero, zero, NoiseDomain.HEAD).isfinite().all()


@pytest.mark.parametrize("seed", [0, 1, -1, -(2**63), 0x0123456789ABCDEF])
def test_noise_is_uniform_over_token_ids_and_over_positions(seed: int) -> None:
    # Kolmogorov-Smirnov, ten times at 1e-5: a false alarm once in 10,000 choices of the seeds.
    over_positions = gumbel(
        torch.tensor([seed]), torch.tensor([0]), torch.arange(DRAWS), torch.tensor([42]), NoiseDomain.HEAD
    )
    assert kstest(uniform(draws(seed=seed)).numpy(), "uniform").pvalue > 1e-5
    assert kstest(uniform(over_positions).numpy(), "uniform").pvalue > 1e-5


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(draws(seed=8), id="next seed"),
        pytest.param(draws(seed=7 + 2**32), id="seed that differs in the high half"),
        pytest.param(draws(seed=7 - 2**63), id="seed that differs in the highest bit"),
        pytest.param(draws(choice=1), id="next choice"),
        pytest.param(draws(position=12), id="next position"),
        pytest.param(draws(first_token=1), id="next token id"),
        pytest.param(draws(domain=NoiseDomain.TAIL_BUCKET), id="bucket"),
        pytest.param(draws(domain=NoiseDomain.TAIL), id="tail"),
    ],
)
def test_noise_does_not_correlate_with_the_noise_of_another(other: Tensor) -> None:
    # A correlation of independent draws is normal with deviation 1 / sqrt(DRAWS); 5 deviations: 6e-7 each.
    pair = torch.stack((uniform(draws()), uniform(other)))
    assert abs(torch.corrcoef(pair)[0, 1].item()) < 5 / math.sqrt(DRAWS)


def test_noise_is_the_same_alone_and_in_any_batch() -> None:
    count = 1000
    generator = torch.Generator().manual_seed(3)
    seed, choice, position, token_id = torch.randint(0, 2**31, (4, count), generator=generator)
    together = gumbel(seed, choice, position, token_id, NoiseDomain.HEAD)
    subsets = [torch.randperm(count, generator=generator), *torch.arange(0, count, 97).unsqueeze(1)]
    for i in subsets:
        assert torch.equal(gumbel(seed[i], choice[i], position[i], token_id[i], NoiseDomain.HEAD), together[i])


@pytest.mark.gpu
def test_words_are_the_same_on_cuda() -> None:
    counters, keys, words = (torch.tensor(column, device="cuda") for column in zip(*KNOWN_ANSWERS, strict=True))
    assert torch.equal(philox_4x32(counters, keys), words)
