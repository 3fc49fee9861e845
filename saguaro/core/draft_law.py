"""Drafting in rejection mode: the law q of each draft token, made first, and the token drawn from it.

Verification is exact only if its q is the q that the token was drawn from. So q is finished before it is drawn from:

    the draft's processed law (temperature, top-k, top-p)
    -> Saguaro sampling: the tokens whose outcomes are prepared, times C
    -> its M likeliest tokens, normalised
    -> float16, what travels
    -> each over their sum, what q means on both sides.

Float16 and not float32: a float16 is a whole multiple of 2^-24, so float64 adds a row up without rounding, in any
order. Drafter and verifier divide by the very same sum on any device. It is also half the bytes; the draft's law is
changed by 2^-11 of itself, which costs that share of the acceptances at most, and no exactness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.candidates import RankedCandidates, ranked_by_logits
from saguaro.core.draws import pick, uniform
from saguaro.core.noise import NoiseDomain
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import first_argmax
from saguaro.core.truncation import topk, truncated
from saguaro.types import SparseDistribution

SUPPORT = 64


@dataclass(frozen=True, slots=True, eq=False)
class SparseDistributions:
    """One law a row: token_ids[i, j] has probability probs[i, j] / sum(probs[i]); all other tokens have none.

    A row's ids with a positive probability are distinct; places with probability 0 only fill the row up.
    """

    token_ids: Tensor  # [rows, M] int64
    probs: Tensor  # [rows, M] float16

    def normalised(self) -> Tensor:  # [rows, M] float64
        """q of each place."""
        return _normalised(self.probs.double())

    def of(self, token_ids: Tensor) -> Tensor:  # [rows] int64 -> [rows] float64
        """q of one token a row."""
        return self.normalised().masked_fill(self.token_ids != token_ids.unsqueeze(1), 0.0).sum(-1)

    def draw(self, rows: RowSampling) -> Tensor:  # [rows] int64
        """One token a row, with the draft's noise of that row."""
        place = pick(self.normalised(), uniform(rows.seed, rows.choice, rows.position, NoiseDomain.DRAFT))
        return self.token_ids.gather(1, place.unsqueeze(1)).squeeze(1)

    def pack(self) -> list[SparseDistribution]:
        """Each row as it travels, without the places that have no probability."""
        probs, token_ids = self.probs.cpu().numpy().astype("<f2"), self.token_ids.cpu().numpy().astype("<u4")
        return [
            SparseDistribution(ids[row > 0].tobytes(), row[row > 0].tobytes())
            for ids, row in zip(token_ids, probs, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class DrawnTokens:
    """One draft token a row, and the law that it was drawn from."""

    token_ids: Tensor  # [rows] int64
    laws: SparseDistributions  # one a row


def draft(
    logits: Tensor,  # [rows, vocab], the draft's, at least one finite value a row
    rows: RowSampling,
    fan_out: Sequence[int] = (),  # [rows], F: outcomes prepared for a rejection at this place; needed where C < 1
    cached_scale: float | Sequence[float] = 1.0,  # C of Saguaro sampling, 0..1, for all or [rows]; 1 changes nothing
    support: int = SUPPORT,  # M
) -> DrawnTokens:
    """A token a row by the draft's law; the argmax, with certainty, at temperature 0.

    Raises ValueError for C outside 0..1, M < 1, or C < 1 without one F a row.
    """
    laws = _laws(logits, rows, fan_out, cached_scale, support)
    return DrawnTokens(laws.draw(rows), laws)


def guesses(
    logits: Tensor,  # [rows, vocab], the draft's
    count: int,
) -> RankedCandidates:
    """The `count` best guesses of the bonus token at each place, the tokens scaled by Saguaro sampling first.

    Ranked by the draft's own logits: the residual is drawn with noise that the draft must not know. Where a draft
    token was rejected, `fan_out.candidates_for` takes it out, so ask for one guess more than are wanted.
    """
    return ranked_by_logits(logits, count)


def _laws(
    logits: Tensor, rows: RowSampling, fan_out: Sequence[int], cached_scale: float | Sequence[float], support: int
) -> SparseDistributions:
    scales = [cached_scale] * len(logits) if isinstance(cached_scale, float | int) else cached_scale
    if not all(0.0 <= scale <= 1.0 for scale in scales):
        raise ValueError(f"cached_scale is {cached_scale}; it must be from 0 to 1")
    if support < 1:
        raise ValueError(f"support is {support}; a law needs at least 1 token")
    processed = truncated(logits, rows)
    if all(scale == 1.0 for scale in scales):
        log_weights, token_ids = topk(processed, support)
    else:
        if not len(fan_out) == len(scales) == len(logits):
            raise ValueError(f"{len(fan_out)} fan-outs and {len(scales)} scales for {len(logits)} rows")
        log_weights, token_ids = _likeliest_after_scaling(processed, fan_out, scales, support)
    likeliest = log_weights.amax(-1, keepdim=True)
    probs = _normalised((log_weights - likeliest).double().exp()).half()
    if not rows.all_random:
        certain = torch.zeros_like(probs)
        certain[:, 0] = 1.0
        probs = torch.where(rows.is_random.unsqueeze(1), probs, certain)
        token_ids = token_ids.clone()
        token_ids[:, 0] = torch.where(rows.is_random, token_ids[:, 0], first_argmax(logits))
    return SparseDistributions(token_ids, probs)


def _likeliest_after_scaling(
    processed: Tensor, fan_out: Sequence[int], scales: Sequence[float], support: int
) -> tuple[Tensor, Tensor]:  # log weights [rows, M] and ids [rows, M] int64
    """The M likeliest tokens of sigma_{F,C}, "Speculative Speculative Decoding" (arXiv 2603.03251).

    The F + 1 likeliest are scaled, not F: the drafted token is none of the guesses, so the guesses reach one further.
    Where nothing but scaled tokens would be left C has no effect; so also for C = 0, as in the limit.
    """
    num_scaled = [count + 1 if count and scale < 1 else 0 for count, scale in zip(fan_out, scales, strict=True)]
    # Scaling moves at most these tokens down, so the M likeliest are among the first M + max.
    log_weights, token_ids = topk(processed, support + max(num_scaled, default=0))
    place = torch.arange(log_weights.shape[1], device=log_weights.device)
    is_scaled = place < torch.tensor(num_scaled, device=log_weights.device).unsqueeze(1)
    has_others = (log_weights.isfinite() & ~is_scaled).any(-1, keepdim=True)
    log_scale = torch.tensor([math.log(scale) if scale else -math.inf for scale in scales], device=log_weights.device)
    log_weights = torch.where(is_scaled & has_others, log_weights + log_scale.unsqueeze(1), log_weights)
    best = log_weights.topk(min(support, log_weights.shape[1]))
    return best.values, token_ids.gather(1, best.indices)


def _normalised(weights: Tensor) -> Tensor:  # [rows, M] float64
    return weights / weights.sum(-1, keepdim=True)
