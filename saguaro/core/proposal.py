"""What a target is asked to verify in rejection mode: draft tokens, each with the law that it was drawn from.

A token that was not drawn (n-gram, random, the argmax at temperature 0) has a point mass as its law. A proposal with a
missing or broken law cannot be made: verification would be inexact without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saguaro.core.draft_law import SparseDistributions
from saguaro.errors import InvalidRequest
from saguaro.types import SparseDistribution, TokenIds

# Rounding to float16 moves a probability by at most 2^-11 of itself, or by 2^-25 where it is tiny.
_SUM_TOLERANCE = 2.0**-10


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Draft tokens of one sequence and their laws; each token has a positive probability in its own law."""

    token_ids: TokenIds
    law_ids: NDArray[np.int64]  # [tokens, M]
    law_probs: NDArray[np.float16]  # [tokens, M]

    @classmethod
    def drawn(cls, token_ids: TokenIds, distributions: Sequence[SparseDistribution], vocab: int) -> Proposal:
        """Tokens that were drawn, and what they were drawn from, as it arrived.

        InvalidRequest, naming token, value and bound, for a law that is missing, broken, or without its token.
        """
        if len(distributions) != len(token_ids):
            raise InvalidRequest(
                "distributions",
                f"{len(token_ids)} draft tokens came with {len(distributions)} distributions; "
                "each must come with the one that it was drawn from",
            )
        num_pairs = [_num_pairs(place, distribution) for place, distribution in enumerate(distributions)]
        # Rows are filled up with pairs of token 0 and probability 0.
        law_ids = np.zeros((len(token_ids), max(num_pairs, default=1)), dtype=np.int64)
        law_probs = np.zeros(law_ids.shape, dtype=np.float16)
        for place, (count, distribution) in enumerate(zip(num_pairs, distributions, strict=True)):
            law_ids[place, :count] = np.frombuffer(distribution.token_ids, dtype="<u4")
            law_probs[place, :count] = np.frombuffer(distribution.probs, dtype="<f2")
        _judge(token_ids, law_ids, law_probs, np.array(num_pairs, dtype=np.int64), vocab)
        return cls(token_ids, law_ids, law_probs)

    @classmethod
    def not_drawn(cls, token_ids: TokenIds) -> Proposal:
        """Tokens that were chosen without chance, each its law's only token."""
        law_ids = np.array(token_ids, dtype=np.int64).reshape(-1, 1)
        return cls(token_ids, law_ids, np.ones(law_ids.shape, dtype=np.float16))

    def first(self, count: int) -> Proposal:
        """The first `count` tokens, or all where there are fewer."""
        return Proposal(self.token_ids[:count], self.law_ids[:count], self.law_probs[:count])


@dataclass(frozen=True, slots=True, eq=False)
class Proposals:
    """Proposals of a batch, sequence after sequence."""

    token_ids: Tensor  # [tokens] int64
    num_tokens: Tensor  # [sequences] int64
    laws: SparseDistributions  # [tokens] rows

    @classmethod
    def of(cls, proposals: Sequence[Proposal], device: torch.device | str = "cpu") -> Proposals:
        """The batch; an empty proposal for a sequence that decodes plainly."""
        width = max((proposal.law_ids.shape[1] for proposal in proposals), default=1)
        num_tokens = [len(proposal.token_ids) for proposal in proposals]
        law_ids = np.zeros((sum(num_tokens), width), dtype=np.int64)
        law_probs = np.zeros(law_ids.shape, dtype=np.float16)
        start = 0
        for proposal in proposals:
            end, own_width = start + len(proposal.token_ids), proposal.law_ids.shape[1]
            law_ids[start:end, :own_width] = proposal.law_ids
            law_probs[start:end, :own_width] = proposal.law_probs
            start = end
        token_ids = [token for proposal in proposals for token in proposal.token_ids]
        return cls(
            torch.tensor(token_ids, dtype=torch.int64, device=device),
            torch.tensor(num_tokens, dtype=torch.int64, device=device),
            SparseDistributions(torch.from_numpy(law_ids).to(device), torch.from_numpy(law_probs).to(device)),
        )


def _num_pairs(place: int, distribution: SparseDistribution) -> int:
    num_ids, odd_ids = divmod(len(distribution.token_ids), 4)
    num_probs, odd_probs = divmod(len(distribution.probs), 2)
    if odd_ids or odd_probs or num_ids != num_probs or num_ids == 0:
        raise InvalidRequest(
            f"distributions[{place}]",
            f"{len(distribution.token_ids)} bytes of token ids and {len(distribution.probs)} of probabilities; "
            "a pair has 4 and 2, and there must be at least 1 pair",
        )
    return num_ids


def _judge(
    token_ids: TokenIds,
    law_ids: NDArray[np.int64],  # [tokens, M]
    law_probs: NDArray[np.float16],  # [tokens, M]
    num_pairs: NDArray[np.int64],  # [tokens], what lies beyond only fills up
    vocab: int,
) -> None:
    if not token_ids:
        return
    filled = np.arange(law_ids.shape[1]) < num_pairs[:, None]
    probs = law_probs.astype(np.float64)
    _refuse(law_ids >= vocab, "token_ids", law_ids, f"must be below the vocabulary's {vocab}")
    _refuse(~((probs >= 0) & (probs <= 1)), "probs", probs, "must be from 0 to 1")
    sums = probs.sum(-1, keepdims=True)
    _refuse(abs(sums - 1) > _SUM_TOLERANCE, "sum of probs", sums, f"must be 1 within {_SUM_TOLERANCE:g}")
    # Fillers get distinct ids of their own, so that they repeat nothing.
    ordered = np.sort(np.where(filled, law_ids, vocab + np.arange(law_ids.shape[1])), axis=-1)
    _refuse(ordered[:, 1:] == ordered[:, :-1], "token_ids", ordered[:, 1:], "must not come twice")
    drafted = np.array(token_ids, dtype=np.int64).reshape(-1, 1)
    is_inside = ((law_ids == drafted) & (probs > 0)).any(-1, keepdims=True)
    _refuse(~is_inside, "token_ids", drafted, "was drafted, so it must be there with a positive probability")


def _refuse(is_bad: NDArray[np.bool_], part: str, values: NDArray[np.generic], bound: str) -> None:
    """InvalidRequest that names the first bad value of [tokens, n]."""
    if is_bad.any():
        place, index = np.argwhere(is_bad)[0]
        raise InvalidRequest(f"distributions[{place}].{part}", f"{part}: {values[place, index]} {bound}")
