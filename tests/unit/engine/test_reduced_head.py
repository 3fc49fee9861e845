import pytest
import torch
from torch import nn

from saguaro.core.candidates import ranked_candidates
from saguaro.core.draft_law import draft
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from saguaro.engine.reduced_head import OUTSIDE, ReducedHead
from saguaro.errors import ConfigurationError
from saguaro.types import SamplingParams

IDS = (1, 4, 5, 30)


@pytest.fixture
def logits() -> torch.Tensor:
    torch.manual_seed(0)
    return ReducedHead(nn.Linear(8, 40), IDS)(torch.randn(6, 8)).detach()


@pytest.mark.parametrize("bias", [True, False])
def test_its_logits_are_the_full_heads_where_it_has_rows(bias: bool) -> None:
    head, hidden = nn.Linear(8, 40, bias=bias), torch.randn(2, 3, 8)
    logits = ReducedHead(head, IDS)(hidden)
    torch.testing.assert_close(logits[..., list(IDS)], head(hidden)[..., list(IDS)])
    assert int((logits == OUTSIDE).sum()) == 6 * 36


@pytest.mark.parametrize("temperature", [0.1, 1.0, 2.0])
def test_a_token_outside_has_no_probability_in_any_law(logits: torch.Tensor, temperature: float) -> None:
    rows = RowSampling.build([SamplingParams(temperature=temperature, seed=3)] * 6, range(6))
    outside = [token for token in range(40) if token not in IDS]
    assert (processed_log_probs(logits, rows).exp()[:, outside] == 0).all()
    drawn = draft(logits, rows)
    assert set(drawn.token_ids.tolist()) <= set(IDS)
    assert set(drawn.laws.token_ids[drawn.laws.probs > 0].tolist()) <= set(IDS)
    ranked = ranked_candidates(logits, rows, 8)
    assert {
        i for ids, n in zip(ranked.token_ids.tolist(), ranked.num_valid.tolist(), strict=True) for i in ids[:n]
    } <= set(IDS)


def test_greedy_guesses_begin_with_what_the_head_knows(logits: torch.Tensor) -> None:
    ranked = ranked_candidates(logits, RowSampling.build([SamplingParams()] * 6, range(6)), 4)
    assert all(set(ids) == set(IDS) for ids in ranked.token_ids.tolist())


def test_where_a_grammar_leaves_only_tokens_outside_one_of_them_is_drafted(logits: torch.Tensor) -> None:
    masked = torch.full_like(logits, -torch.inf)
    masked[:, [7, 9]] = logits[:, [7, 9]]
    rows = RowSampling.build([SamplingParams(temperature=1.0, seed=3)] * 6, range(6))
    assert set(draft(masked, rows).token_ids.tolist()) <= {7, 9}


@pytest.mark.parametrize("ids", [(), (3, 3), (5, 4), (-1, 2), (39, 40)])
def test_ids_out_of_order_or_range_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="draft_token_ids"):
        ReducedHead(nn.Linear(8, 40), ids)
