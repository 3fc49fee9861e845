"""Large vocabularies are searched block by block; the answers are those of the plain search."""

import pytest
import torch

from saguaro.core.candidates import ranked_candidates
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import race
from saguaro.types import SamplingParams

VOCAB = 64 * 48  # whole blocks, and enough of them that the blocks are used
GREEDY = SamplingParams(temperature=0.0)


def greedy(num_rows: int) -> RowSampling:
    return RowSampling.build([GREEDY] * num_rows, range(num_rows))


def coarse_logits(num_rows: int, levels: int) -> torch.Tensor:
    """With few levels nearly everything ties."""
    return torch.randint(0, levels, (num_rows, VOCAB), generator=torch.Generator().manual_seed(levels)).float()


@pytest.mark.parametrize("levels", [1, 2, 50, 10_000, 1_000_000])
def test_the_winner_is_the_first_of_the_largest(levels: int):
    logits = coarse_logits(20, levels)
    first = [row.index(max(row)) for row in logits.tolist()]
    assert race(logits, greedy(20)).tolist() == first


@pytest.mark.parametrize("count", [1, 2, 9, 23, 24, 25, 100])
@pytest.mark.parametrize("levels", [50, 1_000_000])
def test_the_candidates_are_the_largest_in_order_and_distinct(levels: int, count: int):
    logits = coarse_logits(8, levels)
    ids = ranked_candidates(logits, greedy(8), count).token_ids
    assert torch.equal(logits.gather(1, ids), logits.sort(descending=True).values[:, :count])
    assert all(len(set(row)) == count for row in ids.tolist())


def test_candidates_stop_where_the_finite_logits_do():
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, [5, 700, 701]] = torch.tensor([1.0, 3.0, 2.0])
    candidates = ranked_candidates(logits, greedy(1), 9)
    assert candidates.num_valid.tolist() == [3]
    assert candidates.token_ids[0, :3].tolist() == [700, 701, 5]
