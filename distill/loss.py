"""How far the draft is from the target's law, of which only the likeliest tokens are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LEAST_MASS = 1e-6  # what float32 can tell of 1 minus a sum of probabilities


@dataclass(frozen=True, slots=True, eq=False)
class PartialLaws:
    """The target's laws over the draft's vocabulary: k tokens each, and the mass of all others.

    Conditioned on what the draft can say: mass of tokens outside its vocabulary is dropped, since no training could
    ever move it there.
    """

    columns: Tensor  # [rows, k] int64, into the draft's vocabulary; 0 where `probs` is 0
    probs: Tensor  # [rows, k] float32
    tail: Tensor  # [rows] float32

    @staticmethod
    def of(top_ids: Tensor, top_log_probs: Tensor, column_of: Tensor) -> PartialLaws:
        """`top_ids` and `top_log_probs` [rows, k] as stored; `column_of` [vocab] int64, -1 for a token without one."""
        columns = column_of[top_ids.long()]
        is_known = columns >= 0
        probs = top_log_probs.float().exp()
        # Rounding to 16 bits may bring the sum above 1.
        probs = probs / probs.sum(-1, keepdim=True).clamp_min(1.0)
        tail = (1.0 - probs.sum(-1)).clamp_min(0.0)
        probs = torch.where(is_known, probs, 0.0)
        total = (probs.sum(-1) + tail).clamp_min(_LEAST_MASS)
        return PartialLaws(torch.where(is_known, columns, 0), probs / total[:, None], tail / total)


def divergences(laws: PartialLaws, logits: Tensor) -> Tensor:  # [rows]
    """KL(target || draft) of each row, the tail taken as one token: the least that the whole laws can differ by.

    `logits` [rows, draft vocabulary] are the draft's. By the log-sum inequality it is 0 iff the draft gives the known
    tokens, and the tail together, what the target does.
    """
    log_q = logits.float().log_softmax(-1).gather(1, laws.columns)
    is_known = laws.probs > 0
    q_known = torch.where(is_known, log_q.exp(), 0.0).sum(-1)
    log_q_tail = torch.log((1.0 - q_known).clamp_min(_LEAST_MASS))
    known = torch.xlogy(laws.probs, laws.probs) - torch.where(is_known, laws.probs * log_q, 0.0)
    tail = torch.xlogy(laws.tail, laws.tail) - laws.tail * log_q_tail
    return known.sum(-1) + tail
