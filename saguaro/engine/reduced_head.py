"""An LM head over some of the vocabulary, for drafts whose full head would cost more than their layers.

Logits keep the target's columns, so ids are the target's everywhere else. A column that the head does not know holds
OUTSIDE, so low that its probability is exactly 0 in float32 at any temperature that requests may have. It is finite
because a grammar may allow nothing but such tokens: a row must always have something to choose.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saguaro.errors import ConfigurationError

OUTSIDE = -1e4


class ReducedHead(nn.Module):
    """The rows of an LM head that `token_ids` name."""

    def __init__(self, head: nn.Linear, token_ids: Sequence[int]) -> None:
        """`head` maps hidden states to the whole vocabulary. Raises ConfigurationError for ids that it does not have,
        or not in ascending order.
        """
        super().__init__()
        vocab_size = head.out_features
        ids = torch.tensor(token_ids, dtype=torch.int64)
        if not len(ids) or int(ids[0]) < 0 or int(ids[-1]) >= vocab_size or not bool((ids.diff() > 0).all()):
            raise ConfigurationError(
                f"draft_token_ids must be ascending ids below the vocabulary's {vocab_size}, at least one"
            )
        self.vocab_size = vocab_size
        self.register_buffer("token_ids", ids.to(head.weight.device), persistent=False)
        self.linear = nn.Linear(head.in_features, len(ids), bias=head.bias is not None, device="meta")
        with torch.no_grad():
            self.linear.weight = nn.Parameter(head.weight[ids].clone(), requires_grad=False)
            if head.bias is not None:
                self.linear.bias = nn.Parameter(head.bias[ids].clone(), requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:  # [..., in] -> [..., vocab]
        """Logits of the whole vocabulary."""
        known = self.linear(hidden)
        logits: Tensor = known.new_full((*known.shape[:-1], self.vocab_size), OUTSIDE)
        assert isinstance(self.token_ids, Tensor)
        logits.index_copy_(-1, self.token_ids, known)
        return logits
