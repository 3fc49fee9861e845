"""How far the draft is from the target's law, of which only the likeliest tokens are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_DIVERGENCE = 0.15  # weight of KL beside TV
_ROWS_AT_ONCE = 32  # 2 MiB of logits over 16,384 tokens
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


def losses(laws: PartialLaws, logits: Tensor) -> Tensor:  # [rows] float32
    """0.15 KL(target || draft) + TV(target, draft) of each row, all of the tail taken as one token.

    `logits` [rows, draft vocabulary], of any floating type, are the draft's. That is the least by which the whole laws
    can differ, and 0 iff the draft gives the known tokens, and the tail together, what the target does (log-sum
    inequality). Rejection mode accepts with probability 1 - TV (arXiv 2211.17192), so TV is what is wanted; its
    gradient vanishes where the draft says nothing of what the target says, and there KL has its largest.
    """
    loss: Tensor = _Losses.apply(logits, laws.columns, laws.probs, laws.tail)  # type: ignore[no-untyped-call]
    return loss


class _Losses(torch.autograd.Function):
    """With a gradient by hand, made beside the value while a few rows are in the cache of the processor."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, columns: Tensor, probs: Tensor, tail: Tensor) -> Tensor:
        loss, gradient = torch.empty(len(logits)), torch.empty_like(logits)
        for begin in range(0, len(logits), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            loss[rows], gradient[rows] = _with_gradient(logits[rows].float(), columns[rows], probs[rows], tail[rows])
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *of_rows: Tensor) -> tuple[Tensor, None, None, None]:
        [gradient] = ctx.saved_tensors
        return gradient * of_rows[0][:, None].to(gradient.dtype), None, None, None


def _with_gradient(logits: Tensor, columns: Tensor, probs: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Loss [rows], and its gradient [rows, draft vocabulary] in the memory of the draft's probabilities q.

    With S the sum of q over the known tokens, p and t the target's probabilities and its tail:
    dKL/dz = q - p of a known token and q (1 - t / (1 - S)) of another;
    dTV/dz = q (M - m), m being 1 where q is below p (for the tail: 1 - S below t) and M the sum of q there.
    """
    q = logits.softmax(-1)
    log_normaliser = logits.amax(-1, keepdim=True) - q.amax(-1, keepdim=True).log()
    log_q = logits.gather(1, columns) - log_normaliser
    is_known = probs > 0
    known = torch.where(is_known, log_q.exp(), 0.0)
    rest = (1.0 - known.sum(-1)).clamp_min(_LEAST_MASS)
    divergence = torch.xlogy(probs, probs) - torch.where(is_known, probs * log_q, 0.0)
    divergence = divergence.sum(-1) + torch.xlogy(tail, tail) - tail * rest.log()

    mass = probs.sum(-1) + tail  # 1, or 0 where the draft has none of the tokens
    is_below, tail_is_below = (known < probs).float(), (rest < tail).float()
    below = (is_below * known).sum(-1) + tail_is_below * rest
    distance = mass - torch.minimum(known, probs).sum(-1) - torch.minimum(rest, tail)

    of_tail = tail / rest
    of_all = _DIVERGENCE * (mass - of_tail) + below - tail_is_below
    of_known = _DIVERGENCE * (known * of_tail[:, None] - probs) - known * (is_below - tail_is_below[:, None])
    gradient = q.mul_(of_all[:, None]).scatter_add_(1, columns, torch.where(is_known, of_known, 0.0))
    return _DIVERGENCE * divergence + distance, gradient
