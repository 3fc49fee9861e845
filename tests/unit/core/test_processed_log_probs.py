"""Temperature, top-k and top-p: what transformers does, row by row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from saguaro.types import SamplingParams

INPUT_IDS = torch.zeros((1, 1), dtype=torch.long)


def random_logits(rows: int, vocab: int, spread: float, seed: int = 0) -> Tensor:
    return spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def log_probs(logits: Tensor, *params: SamplingParams) -> Tensor:
    return processed_log_probs(logits, RowSampling.build(params, range(len(params))))


def of_transformers(logits: Tensor, params: SamplingParams) -> Tensor:
    scores: Tensor = TemperatureLogitsWarper(params.temperature)(INPUT_IDS, logits)
    if params.top_k > 0:
        scores = TopKLogitsWarper(params.top_k)(INPUT_IDS, scores)
    if params.top_p < 1:
        scores = TopPLogitsWarper(params.top_p)(INPUT_IDS, scores)
    return scores.log_softmax(-1)


@pytest.mark.parametrize("spread", [0.5, 3.0])  # wide: top-p needs more tokens than the short sort has; narrow: fewer
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.6),
        SamplingParams(temperature=1.7, top_k=1),
        SamplingParams(temperature=1.0, top_k=40),
        SamplingParams(temperature=1.0, top_k=100_000),
        SamplingParams(temperature=0.8, top_p=0.9),
        SamplingParams(temperature=1.0, top_p=0.05),
        SamplingParams(temperature=0.7, top_p=0.95, top_k=300),
        SamplingParams(temperature=1.3, top_p=0.5, top_k=20),
    ],
)
def test_processing_equals_that_of_transformers(params: SamplingParams, spread: float) -> None:
    logits = random_logits(8, 2000, spread)
    ours, theirs = log_probs(logits, *[params] * 8), of_transformers(logits, params)
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    torch.testing.assert_close(ours, theirs)


def test_a_row_is_processed_the_same_alone_and_beside_rows_with_other_parameters() -> None:
    params = [
        SamplingParams(),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=5),
        SamplingParams(temperature=1.5, top_p=0.8),
        SamplingParams(temperature=1.0, top_p=0.3, top_k=700),
    ]
    logits = random_logits(5, 1000, spread=2.0)
    together = log_probs(logits, *params)
    for row, own in enumerate(params):
        assert torch.equal(log_probs(logits[row : row + 1], own), together[row : row + 1])


def test_temperature_zero_is_one_hot_at_the_first_argmax_whatever_the_truncation() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0]])
    greedy = log_probs(logits, SamplingParams(temperature=0.0, top_p=0.1, top_k=3))
    assert greedy.tolist() == [[-math.inf, 0.0, -math.inf, -math.inf]]


def test_a_temperature_too_small_for_float32_is_zero() -> None:
    logits = torch.tensor([[0.0, 30.0, 29.0]])
    assert log_probs(logits, SamplingParams(temperature=1e-40)).tolist() == [[-math.inf, 0.0, -math.inf]]


def test_top_k_and_top_p_keep_ties_with_the_last_kept_token() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    for params in (SamplingParams(temperature=1.0, top_k=2), SamplingParams(temperature=1.0, top_p=0.5)):
        assert log_probs(logits, params).isfinite().tolist() == [[True, True, True, True, False]]


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_top_p_keeps_the_likeliest_token_always(top_p: float) -> None:
    logits = torch.tensor([[0.1, 0.2, 0.0]])
    assert log_probs(logits, SamplingParams(temperature=1.0, top_p=top_p)).isfinite().tolist() == [[False, True, False]]


def test_top_p_keeps_the_token_that_reaches_it_and_none_after() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    kept = [log_probs(logits, SamplingParams(temperature=1.0, top_p=p)).isfinite().sum().item() for p in (0.49, 0.51)]
    assert kept == [1, 2]


def test_seeds_up_to_two_to_the_64_are_kept_as_their_bits() -> None:
    seeds = [0, 2**63 - 1, 2**63, 2**64 - 1]
    rows = RowSampling.build([SamplingParams(seed=seed) for seed in seeds], [0] * 4)
    assert rows.seed.tolist() == [0, 2**63 - 1, -(2**63), -1]


def test_a_seed_beyond_uint64_and_a_missing_position_are_errors() -> None:
    with pytest.raises(OverflowError):
        RowSampling.build([SamplingParams(seed=2**64)], [0])
    with pytest.raises(ValueError, match="2 parameters for 1 positions"):
        RowSampling.build([SamplingParams()] * 2, [0])
