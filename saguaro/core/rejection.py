"""Rejection mode: how many draft tokens stand, and the token after them.

A draft token x with law q is accepted with probability min(1, p(x) / q(x)), p the target's processed law; the first
that is refused is replaced by a draw from max(p - q, 0), normalised; where none is, a draw from p is added. The tokens
emitted have law p, whatever q is (Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318).

A token that was not drawn has a point mass as q, and the same rule says: accept it with probability p(x), else draw
from p without it. At temperature 0, p is a point mass too, and a token is accepted iff it is the argmax.

Each position is decided once, and its draft, acceptance, residual and bonus draws have noise domains of their own, so
no decision knows another's noise. That asks two things of callers: a drawn token is verified only at the position that
it was drawn for, and what is verified may be chosen by the text, by outcomes and by what has arrived, but never by
looking at drawn tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saguaro.core.draws import pick, uniform
from saguaro.core.noise import NoiseDomain
from saguaro.core.proposal import Proposals
from saguaro.core.row_sampling import RowSampling
from saguaro.types import VerificationOutcome


def verify(
    log_probs: Tensor,  # [rows, vocab] log p, sequence after sequence, num_tokens + 1 rows each
    rows: RowSampling,  # of these rows; a row's position is that of the token it decides
    proposals: Proposals,
) -> list[VerificationOutcome]:  # one a sequence
    """Outcome of each sequence's verification.

    Row i of a sequence holds the target's law (`processed_log_probs`) after the committed tokens and its first i draft
    tokens. Raises ValueError when the number of rows is not that of the proposals.
    """
    num_tokens = proposals.num_tokens
    after = (num_tokens + 1).cumsum(0)
    first_row = after - num_tokens - 1
    num_rows = len(proposals.token_ids) + len(num_tokens)
    if not len(log_probs) == len(rows.position) == num_rows:
        raise ValueError(
            f"{len(log_probs)} rows of log_probs and {len(rows.position)} of parameters; the proposals have {num_rows}"
        )
    noise = _noise(rows)
    num_accepted = _num_accepted(log_probs, noise.acceptance, proposals, first_row)
    is_refused = num_accepted < num_tokens
    row = first_row + num_accepted
    weights = log_probs[row].exp().double()
    if len(proposals.token_ids):
        # Of the refused token; of any where none was refused, whose law then does not count.
        token = (row - torch.arange(len(row), device=row.device)).clamp(max=len(proposals.token_ids) - 1)
        q = proposals.laws.normalised()[token].masked_fill(~is_refused.unsqueeze(1), 0.0)
        weights = _residual(weights, proposals.laws.token_ids[token], q)
    bonus = pick(weights, torch.where(is_refused, noise.residual[row], noise.bonus[row]))
    return [
        VerificationOutcome(accepted, bonus_token)
        for accepted, bonus_token in zip(num_accepted.tolist(), bonus.tolist(), strict=True)
    ]


class _Noise(NamedTuple):
    """Uniforms of each row, [rows] float64 each."""

    acceptance: Tensor
    residual: Tensor
    bonus: Tensor


def _noise(rows: RowSampling) -> _Noise:
    """Whatever a row may need: most of a call of the generator is its many small operations, so there is one."""
    domains = torch.tensor([NoiseDomain.ACCEPTANCE, NoiseDomain.RESIDUAL, NoiseDomain.BONUS], device=rows.seed.device)
    seed, choice, position = (each.repeat(len(domains)) for each in (rows.seed, rows.choice, rows.position))
    return _Noise(*uniform(seed, choice, position, domains.repeat_interleave(len(rows.seed))).chunk(len(domains)))


def _num_accepted(
    log_probs: Tensor,  # [rows, vocab]
    noise: Tensor,  # [rows] float64
    proposals: Proposals,
    first_row: Tensor,  # [sequences] int64
) -> Tensor:  # [sequences] int64
    """k of each sequence: its tokens before the first that is refused."""
    sequence = torch.arange(len(first_row), device=first_row.device).repeat_interleave(proposals.num_tokens)
    # Every sequence before this one has one row more than it has tokens.
    row = torch.arange(len(sequence), device=first_row.device) + sequence
    p = log_probs[row, proposals.token_ids].exp().double()
    q = proposals.laws.of(proposals.token_ids)
    place = torch.where(noise[row] * q < p, proposals.num_tokens[sequence], row - first_row[sequence])
    return proposals.num_tokens.scatter_reduce(0, sequence, place, "amin")


def _residual(
    p: Tensor,  # [sequences, vocab] float64
    token_ids: Tensor,  # [sequences, M] int64
    q: Tensor,  # [sequences, M] float64; all 0 where nothing was refused
) -> Tensor:  # [sequences, vocab] float64
    """max(p - q, 0), not normalised; p where q is 0.

    A refusal has probability sum of max(p - q, 0), so without residual mass there is none but by rounding: p and q
    are then equal to about 1e-7, and a draw from p errs by no more than that.
    """
    residual = p.scatter_add(1, token_ids, -q).clamp_(min=0.0)
    has_none = residual.sum(-1) == 0
    residual[has_none] = p[has_none]
    return residual
