"""Which tokens stay: temperature, then top-k, top-p and min-p, in transformers' order and by its laws."""

from __future__ import annotations

import torch
from torch import Tensor

from saguaro.core.row_sampling import RowSampling

# Top-p sorts only this many of the likeliest tokens; rows whose mass is spread wider are sorted wholly.
_SHORT_SORT = 256
# A maximum is found several times faster than the largest few, so these are searched by the maxima of such blocks.
_BLOCK = 64


def truncated(
    logits: Tensor,  # [rows, vocab]
    rows: RowSampling,
) -> Tensor:  # [rows, vocab] float32
    """Logits over temperature, -inf for what top-k, top-p and min-p remove.

    Top-k keeps ties with the k-th token; top-p keeps a token iff the mass of strictly likelier ones is below top_p, so
    ties with the last one stay too; min-p keeps what is at least min_p times as probable as the likeliest, which always
    stays. At temperature 0 nothing is removed.
    """
    scaled = logits.float()
    if rows.any_random:
        scaled = scaled / rows.temperature.unsqueeze(1)
    if rows.max_top_k > 0:
        best = topk(scaled, rows.max_top_k)[0]
        kth = best.gather(1, (rows.top_k - 1).clamp(0, best.shape[1] - 1).unsqueeze(1))
        scaled = scaled.masked_fill((scaled < kth) & (rows.top_k > 0).unsqueeze(1), -torch.inf)
    if rows.any_top_p:
        probs = scaled.softmax(-1)
        scaled = scaled.masked_fill(probs < _least_kept_by_top_p(probs, rows.top_p).unsqueeze(1), -torch.inf)
    if rows.any_min_p:
        # p >= min_p * max p, without another softmax: its divisor is the same on both sides.
        least = scaled.amax(-1, keepdim=True) + rows.min_p.log().unsqueeze(1)
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    return scaled


def _least_kept_by_top_p(probs: Tensor, top_p: Tensor) -> Tensor:  # [rows] float32
    """The probability from which top-p keeps tokens."""
    least, mass = _least_kept_of_sorted(probs.topk(min(_SHORT_SORT, probs.shape[1])).values, top_p)
    unfinished = (mass < top_p) & (top_p < 1)
    if unfinished.any():
        ordered = probs[unfinished].sort(descending=True).values
        least[unfinished], _ = _least_kept_of_sorted(ordered, top_p[unfinished])
    return least.masked_fill(top_p >= 1, 0.0)


def _least_kept_of_sorted(ordered: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:  # [rows] and [rows]
    """Over probabilities in descending order: the least one before which less than top_p lies, and the mass of all."""
    mass = ordered.double().cumsum(-1)
    # The likeliest is kept whatever top_p is, so it is left out of the count; the last kept index is then the count.
    last = (mass[:, :-1] < top_p.unsqueeze(1)).sum(-1, keepdim=True)
    return ordered.gather(1, last).squeeze(1), mass[:, -1]


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:  # [rows, k] and [rows, k] int64
    """The k = min(count, vocab) largest of [rows, vocab] in descending order, and their ids; ties in any order."""
    num_rows, vocab = values.shape
    if vocab % _BLOCK or count * _BLOCK > vocab // 2:
        best = values.topk(min(count, vocab))
        return best.values, best.indices
    # The k largest lie in the k blocks with the largest maxima.
    blocks = values.reshape(num_rows, -1, _BLOCK)
    chosen = blocks.amax(-1).topk(count).indices  # [rows, k]
    best = blocks[torch.arange(num_rows, device=values.device).unsqueeze(1), chosen].flatten(1).topk(count)
    return best.values, chosen.gather(1, best.indices // _BLOCK) * _BLOCK + best.indices % _BLOCK
