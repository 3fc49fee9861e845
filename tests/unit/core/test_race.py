"""The race: its law is p for any head, its noise is that of the position alone, target and draft are coupled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import HEAD_PROBABILITY, _row_sums, processed_log_probs, race
from saguaro.types import SamplingParams
from tests.unit.core.law import assert_follows

DRAWS = 100_000
CHUNK = 20_000
ALL_TAIL = 1.1
PLAIN = SamplingParams(temperature=1.0)


def draw(
    logits: Tensor,  # [vocab]
    params: SamplingParams = PLAIN,
    *,
    head_probability: float = HEAD_PROBABILITY,
    over_seeds: bool = False,
) -> Tensor:  # [DRAWS], one a position, or one a seed
    tokens = []
    for start in range(0, DRAWS, CHUNK):
        varied = range(start, start + CHUNK)
        if over_seeds:
            rows = RowSampling.build([dataclasses.replace(params, seed=seed) for seed in varied], [5] * CHUNK)
        else:
            rows = RowSampling.build([params] * CHUNK, varied)
        tokens.append(race(logits.expand(CHUNK, -1), rows, head_probability))
    return torch.cat(tokens)


def zipf_logits(vocab: int) -> Tensor:
    return -torch.arange(1, vocab + 1).float().log()[torch.randperm(vocab, generator=torch.Generator().manual_seed(1))]


def assert_law(tokens: Tensor, logits: Tensor, params: SamplingParams) -> None:
    probs = processed_log_probs(logits.unsqueeze(0), RowSampling.build([params], [0]))[0].double().exp()
    assert_follows(tokens.bincount(minlength=len(logits)).numpy(), probs.numpy())


# Each law test: a false alarm once in 10,000, see tests/unit/core/law.py.
@pytest.mark.parametrize(
    ("head_probability", "over_seeds"),
    [
        (HEAD_PROBABILITY, False),
        (HEAD_PROBABILITY, True),
        (0.02, False),
        pytest.param(0.15, True, marks=pytest.mark.slow),
        (ALL_TAIL, False),
    ],
)
def test_the_race_follows_p_however_much_of_it_lies_in_the_tail(head_probability: float, over_seeds: bool) -> None:
    logits, params = zipf_logits(50), SamplingParams(temperature=1.0, seed=99)
    assert_law(draw(logits, params, head_probability=head_probability, over_seeds=over_seeds), logits, params)


@pytest.mark.parametrize("head_probability", [HEAD_PROBABILITY, pytest.param(0.05, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.5, seed=1),
        SamplingParams(temperature=2.0, seed=2, choice=3),
        SamplingParams(temperature=1.0, seed=3, top_k=7),
        SamplingParams(temperature=1.0, seed=2**64 - 1, top_p=0.7),
        SamplingParams(temperature=1.4, seed=5, top_k=30, top_p=0.9),
    ],
)
def test_the_race_follows_p_after_temperature_and_truncation(params: SamplingParams, head_probability: float) -> None:
    logits = zipf_logits(40)
    assert_law(draw(logits, params, head_probability=head_probability), logits, params)


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.tensor([0.0, -math.inf, 1.0, -math.inf])
    for head_probability in (HEAD_PROBABILITY, ALL_TAIL):
        assert set(draw(logits, head_probability=head_probability).tolist()) == {0, 2}


def test_temperature_zero_takes_the_first_argmax_also_beside_random_rows() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
    greedy, random = SamplingParams(seed=4), PLAIN
    assert race(logits, RowSampling.build([greedy, greedy], [0, 0])).tolist() == [1, 0]
    assert race(logits, RowSampling.build([greedy, random], [0, 0]))[0] == 1


@pytest.mark.parametrize(
    "changed",
    [SamplingParams(temperature=1.0, seed=1), SamplingParams(temperature=1.0, choice=1)],
    ids=["seed", "choice"],
)
@pytest.mark.parametrize("head_probability", [HEAD_PROBABILITY, pytest.param(0.1, marks=pytest.mark.slow)])
def test_draws_of_another_seed_or_choice_are_independent(changed: SamplingParams, head_probability: float) -> None:
    logits = zipf_logits(8)
    p = logits.double().softmax(0)
    first = draw(logits, head_probability=head_probability)
    second = draw(logits, changed, head_probability=head_probability)
    assert_follows((8 * first + second).bincount(minlength=64).numpy(), torch.outer(p, p).flatten().numpy())


@pytest.mark.parametrize("head_probability", [HEAD_PROBABILITY, 0.1])
def test_draws_of_neighbouring_positions_are_independent(head_probability: float) -> None:
    logits = zipf_logits(8)
    p = logits.double().softmax(0)
    tokens = draw(logits, head_probability=head_probability).view(-1, 2)
    counts = (8 * tokens[:, 0] + tokens[:, 1]).bincount(minlength=64)
    assert_follows(counts.numpy(), torch.outer(p, p).flatten().numpy())


@pytest.mark.parametrize("concentration", [pytest.param(0.1, marks=pytest.mark.slow), 1.0])
def test_draft_and_target_agree_at_least_as_often_as_the_coupling_bound(concentration: float) -> None:
    # (1 - TV) / (1 + TV), arXiv 2408.07978. Four pairs in all, each 4.5 deviations below it: a false alarm under 2e-5.
    generator = np.random.default_rng(5)
    for _ in range(2):
        p, other = torch.from_numpy(generator.dirichlet(np.full(30, concentration), size=2)).clamp(min=1e-9)
        q = 0.5 * p + 0.5 * other
        distance = 0.5 * (p / p.sum() - q / q.sum()).abs().sum().item()
        agreement = (draw(p.log().float()) == draw(q.log().float())).double().mean().item()
        assert agreement > (1 - distance) / (1 + distance) - 4.5 * 0.5 / math.sqrt(DRAWS)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("head_probability", [HEAD_PROBABILITY, 1e-3])
def test_a_row_alone_chooses_as_in_any_batch(head_probability: float) -> None:
    kinds = [
        SamplingParams(),
        SamplingParams(temperature=1.0, seed=2**63),
        SamplingParams(temperature=1.2, seed=2, top_p=0.9),
        SamplingParams(temperature=0.8, seed=3, top_k=50),
    ]
    params, positions = kinds * 2, list(range(8))
    logits = 2.0 * torch.randn(8, 40_000, generator=torch.Generator().manual_seed(0))
    together = race(logits, RowSampling.build(params, positions), head_probability)
    for row in range(8):
        rows = RowSampling.build([params[row]], [positions[row]])
        assert race(logits[row : row + 1], rows, head_probability) == together[row]
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    shuffled = RowSampling.build([params[i] for i in order], [positions[i] for i in order])
    assert torch.equal(race(logits[order], shuffled, head_probability), together[order])


@pytest.mark.usefixtures("threads")
def test_the_mass_of_a_row_s_tail_has_the_same_bits_alone_and_in_any_batch() -> None:
    probs = torch.rand(16, 100_000, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([_row_sums(row.unsqueeze(0)) for row in probs])
    assert torch.equal(alone, _row_sums(probs))


def test_an_empty_batch_chooses_nothing() -> None:
    assert race(torch.empty(0, 10), RowSampling.build([], [])).tolist() == []
