"""Guesses: the draft's token first, then by log q + noise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saguaro.core.candidates import LIKELY, draft_tokens, ranked_candidates
from saguaro.core.noise import NoiseDomain, gumbel
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs, race
from saguaro.types import SamplingParams

GREEDY = SamplingParams()
PARAMS = [
    GREEDY,
    SamplingParams(temperature=1.0, seed=2**64 - 5),
    SamplingParams(temperature=1.3, seed=2, top_p=0.9),
    SamplingParams(temperature=0.8, seed=3, top_k=5),
    SamplingParams(temperature=0.05, seed=4),
]


def batch(rows: int, vocab: int = 300, spread: float = 2.0) -> tuple[Tensor, list[SamplingParams], list[int]]:
    logits = spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows))
    return logits, [PARAMS[row % len(PARAMS)] for row in range(rows)], list(range(rows))


@pytest.mark.parametrize("likely", [LIKELY, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 6])
def test_the_first_candidate_is_the_draft_s_token_and_the_valid_ones_are_distinct(likely: float, count: int) -> None:
    logits, params, positions = batch(500)
    rows = RowSampling.build(params, positions)
    candidates = ranked_candidates(logits, rows, count, likely)
    assert torch.equal(candidates.token_ids[:, 0], draft_tokens(logits, rows, likely))
    for token_ids, num_valid in zip(candidates.token_ids.tolist(), candidates.num_valid.tolist(), strict=True):
        assert 1 <= num_valid <= count
        assert len(set(token_ids[:num_valid])) == num_valid


def test_the_draft_s_token_is_the_race_s_but_for_what_is_unlikely() -> None:
    # A target with the same law: only where a token wins that is unlikely beside the likeliest do they differ.
    logits = 3.0 * torch.randn(4000, 400, generator=torch.Generator().manual_seed(2))
    rows = RowSampling.build([SamplingParams(temperature=1.0, seed=8)] * 4000, range(4000))
    probs = logits.double().softmax(-1)
    unlikely = probs.masked_fill(probs >= 1e-2 * probs.amax(-1, keepdim=True), 0.0).sum(-1)
    differ = draft_tokens(logits, rows, 1e-2) != race(logits, rows)
    assert 0.03 < unlikely.mean() < 0.3
    assert abs(differ.double().mean() - unlikely.mean()) < 4.5 * (0.25 / 4000) ** 0.5
    assert torch.equal(draft_tokens(logits, rows, 1e-12), race(logits, rows, 1e-12))


def test_candidates_are_the_best_by_log_q_plus_noise_over_the_whole_vocabulary() -> None:
    # A wide law, all of it in the head: every score can be computed the slow way.
    logits, rows = batch(40)[0], RowSampling.build([SamplingParams(temperature=3.0, seed=9)] * 40, range(40))
    token_ids = torch.arange(logits.shape[1])
    noise = torch.stack(
        [
            gumbel(torch.tensor([9]), torch.tensor([0]), torch.tensor([i]), token_ids, NoiseDomain.HEAD)
            for i in range(40)
        ]
    )
    slow = (processed_log_probs(logits, rows).double() + noise).topk(10).indices
    candidates = ranked_candidates(logits, rows, 10)
    assert torch.equal(candidates.token_ids, slow)
    assert candidates.num_valid.tolist() == [10] * 40


def test_at_temperature_zero_candidates_go_by_logits_alone_or_beside_random_rows() -> None:
    logits, _, _ = batch(2)
    best = logits[0].topk(7).indices.tolist()
    alone = ranked_candidates(logits[:1], RowSampling.build([GREEDY], [0]), 7)
    beside = ranked_candidates(logits, RowSampling.build([GREEDY, PARAMS[1]], [0, 0]), 7)
    assert alone.token_ids[0].tolist() == beside.token_ids[0].tolist() == best
    assert alone.num_valid[0] == beside.num_valid[0] == 7


@pytest.mark.parametrize(("vocab", "count"), [(40, 1), (40, 5), (1000, 50)])
def test_among_equal_logits_the_first_argmax_comes_first(vocab: int, count: int) -> None:
    logits = torch.randint(0, 3, (50, vocab), generator=torch.Generator().manual_seed(0)).float()
    candidates = ranked_candidates(logits, RowSampling.build([GREEDY] * 50, range(50)), count).token_ids
    assert torch.equal(candidates[:, 0], logits.argmax(-1))
    assert all(len(set(row)) == count for row in candidates.tolist())


def test_a_smaller_support_has_fewer_valid_candidates() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    logits[0, 2:] = -torch.inf
    params = [GREEDY, SamplingParams(temperature=1.0, top_k=3), SamplingParams(temperature=1.0)]
    assert ranked_candidates(logits, RowSampling.build(params, [0, 1, 2]), 8).num_valid.tolist() == [2, 3, 8]
    assert ranked_candidates(logits[:1], RowSampling.build([GREEDY], [0]), 8).num_valid.tolist() == [2]
    assert ranked_candidates(logits, RowSampling.build(params, [0, 1, 2]), 60).token_ids.shape == (3, 60)


def test_a_peaked_row_still_has_candidates_beyond_its_head() -> None:
    logits = torch.tensor([[40.0, 3.0, 2.0, 1.0, 0.0]])
    rows = RowSampling.build([SamplingParams(temperature=0.7)], [0])
    assert ranked_candidates(logits, rows, 4).num_valid.tolist() == [4]


def test_candidates_of_a_row_are_the_same_alone_and_in_any_batch() -> None:
    logits, params, positions = batch(20, vocab=3000, spread=3.0)
    together = ranked_candidates(logits, RowSampling.build(params, positions), 8, 1e-3)
    for row in range(20):
        rows = RowSampling.build([params[row]], [positions[row]])
        alone = ranked_candidates(logits[row : row + 1], rows, 8, 1e-3)
        assert alone.num_valid[0] == together.num_valid[row]
        valid = int(alone.num_valid[0])
        assert alone.token_ids[0, :valid].tolist() == together.token_ids[row, :valid].tolist()


def test_noise_makes_the_target_s_token_more_predictable_than_ranking_without_it() -> None:
    # A draft near the target: 2,000 rows, rates that differ by 30 deviations.
    generator = torch.Generator().manual_seed(3)
    target = 2.0 * torch.randn(2000, 200, generator=generator)
    draft = target + 0.3 * torch.randn(2000, 200, generator=generator)
    rows = RowSampling.build([SamplingParams(temperature=1.0, seed=6)] * 2000, range(2000))
    chosen = race(target, rows).unsqueeze(1)
    with_noise = (ranked_candidates(draft, rows, 4).token_ids == chosen).any(1).double().mean()
    without = (draft.topk(4).indices == chosen).any(1).double().mean()
    assert with_noise > 0.9 > 0.7 > without
