"""Reported log-probabilities are the raw distribution's."""

from __future__ import annotations

import pytest
import torch

from saguaro.core.logprobs import token_logprobs


@pytest.mark.parametrize("rows", [1, 5, 130])  # 130 rows are taken in three parts
@pytest.mark.parametrize("num_top", [0, 1, 7])
def test_logprobs_are_log_softmax_at_the_token_and_at_the_likeliest(rows: int, num_top: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    logits = 3 * torch.randn(rows, 400, generator=generator)
    tokens = torch.randint(400, (rows,), generator=generator)
    expected = logits.log_softmax(-1)
    reported = token_logprobs(logits, tokens.tolist(), num_top)
    own = torch.tensor([item.logprob for item in reported])
    torch.testing.assert_close(own, expected.gather(1, tokens.unsqueeze(1)).squeeze(1))
    best = expected.topk(num_top)
    assert [[token for token, _ in item.top] for item in reported] == best.indices.tolist()
    values = torch.tensor([[value for _, value in item.top] for item in reported])
    torch.testing.assert_close(values, best.values)


def test_a_vocabulary_smaller_than_the_wish_gives_all_of_it() -> None:
    (item,) = token_logprobs(torch.zeros(1, 3), [2], 20)
    assert sorted(token for token, _ in item.top) == [0, 1, 2]


def test_no_tokens_no_logprobs() -> None:
    assert token_logprobs(torch.zeros(4, 9), [], 3) == ()
