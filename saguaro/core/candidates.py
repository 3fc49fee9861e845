"""The draft's guesses of what the target's race chooses, best first: by log q + the noise that the target will add.

Exactness does not hang on them, so they need not be a race to the end: only tokens that the draft holds likely are
looked at, which the logits tell without a softmax. Of what a race with a tail would choose beyond them, next to
nothing would be the target's choice too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.noise import NoiseDomain
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import at_least, first_argmax, heat, noise_of, pairs
from saguaro.core.truncation import topk, truncated

# Of the likeliest token's probability. On the demo pair what is less costs 1 % of the acceptances at temperature 1 and
# none at 0.7 (docs/log.md); its noise would cost more time than all else here.
LIKELY = 3e-4
_NO_MASS = -87.0  # float32 has no such probabilities: what the likeliest exceeds by more is no guess


@dataclass(frozen=True, slots=True, eq=False)
class RankedCandidates:
    """Guesses of each row's token, best first: `token_ids[i, :num_valid[i]]`, distinct; what follows means nothing."""

    token_ids: Tensor  # [rows, count] int64
    num_valid: Tensor  # [rows] int64


def draft_tokens(
    logits: Tensor,  # [rows, vocab], the draft's, at least one finite value a row
    rows: RowSampling,
    likely: float = LIKELY,
) -> Tensor:  # [rows] int64
    """The best guess of each row; the first argmax at temperature 0."""
    if not rows.any_random:
        return first_argmax(logits)
    log_q = truncated(logits, rows)
    return _Scores.of(logits, log_q, rows, likely).best


def ranked_candidates(
    logits: Tensor,  # [rows, vocab], the draft's, at least one finite value a row
    rows: RowSampling,
    count: int,
    likely: float = LIKELY,
) -> RankedCandidates:
    """The `count` best guesses: that of `draft_tokens`, then the others, over at least the `count` likeliest tokens.

    At temperature 0 by logits. Fewer where q has fewer tokens.
    """
    if not rows.any_random:
        return ranked_by_logits(logits, count)
    log_q = truncated(logits, rows)
    kth = topk(log_q, count)[0][:, -1:]
    return _Scores.of(logits, log_q, rows, likely, kth).ranked(len(logits), count)


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Of each row the best guess, and every (row, token) pair that was looked at, in order."""

    best: Tensor  # [rows] int64
    row: Tensor  # [pairs] int64
    token_id: Tensor  # [pairs] int64
    score: Tensor  # [pairs] float64

    @classmethod
    def of(
        cls,
        logits: Tensor,  # [rows, vocab]
        log_q: Tensor,  # [rows, vocab], but for a constant of each row
        rows: RowSampling,
        likely: float,  # who can be the best guess, of the likeliest's probability
        least: Tensor | None = None,  # [rows, 1]: who is looked at beside these
    ) -> _Scores:
        log_likely = math.log(likely) if rows.all_random else rows.is_random.unsqueeze(1) * math.log(likely)
        likeliest = log_q.amax(-1, keepdim=True)
        good = likeliest + log_likely
        bound = good if least is None else torch.minimum(good, least).maximum(likeliest + _NO_MASS)
        row, token_id = pairs(at_least(log_q, bound))
        values = log_q[row, token_id]
        score = values.double() + noise_of(rows, row, token_id, NoiseDomain.HEAD)
        if not rows.all_random:
            score = torch.where(rows.is_random[row], score, logits[row, token_id].double())
        none = torch.zeros(len(logits), dtype=torch.int64, device=row.device)  # the likeliest is always good
        best, _ = heat(none, row, token_id, score.masked_fill(values < good[row, 0], -torch.inf))
        return cls(best, row, token_id, score)

    def ranked(self, num_rows: int, count: int) -> RankedCandidates:
        """The best guess, then the best by score."""
        row, token_id, device = self.row, self.token_id, self.row.device
        # A table with the best guess in column 0. Pairs come in the order of their rows: their columns are 1, 2, ...
        num_pairs = row.bincount(minlength=num_rows)
        column = 1 + torch.arange(len(row), device=device) - (num_pairs.cumsum(0) - num_pairs)[row]
        width = 1 + int(num_pairs.max())
        scores = torch.full((num_rows, width), -torch.inf, dtype=torch.float64, device=device)
        scores[:, 0] = torch.inf
        scores[row, column] = self.score.masked_fill(token_id == self.best[row], -torch.inf)
        token_ids = self.best.unsqueeze(1).repeat(1, width)
        token_ids[row, column] = token_id
        found = scores.topk(min(count, width))
        return RankedCandidates(_padded(token_ids.gather(1, found.indices), count), (found.values > -torch.inf).sum(-1))


def ranked_by_logits(logits: Tensor, count: int) -> RankedCandidates:
    """By logits alone, the first argmax first."""
    values, token_ids = topk(logits, count)
    # Among equal logits topk takes any; the first place belongs to the first argmax.
    winners = first_argmax(logits)
    if not torch.equal(token_ids[:, 0], winners):
        token_ids = _with_first(token_ids, winners.unsqueeze(1))
    return RankedCandidates(_padded(token_ids, count), values.isfinite().sum(-1))


def _with_first(token_ids: Tensor, winners: Tensor) -> Tensor:  # [rows, count]
    """The same ids in their order, but with the winners [rows, 1] first; where one is missing, the last id goes."""
    missing = ~(token_ids == winners).any(-1, keepdim=True)
    token_ids[:, -1:] = torch.where(missing, winners, token_ids[:, -1:])
    return token_ids.gather(1, (token_ids != winners).long().argsort(dim=1, stable=True))


def _padded(token_ids: Tensor, count: int) -> Tensor:  # [rows, count]
    if token_ids.shape[1] == count:
        return token_ids
    return torch.nn.functional.pad(token_ids, (0, count - token_ids.shape[1]))
