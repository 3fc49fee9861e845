"""Sparse distributions on the wire: bytes are cut, never parsed. What they say is judged where it is used."""

from __future__ import annotations

from collections.abc import Sequence

from saguaro.errors import InvalidRequest
from saguaro.types import SparseDistribution

_ID_BYTES = 4
_PROB_BYTES = 2


def pairs_in(distribution: SparseDistribution) -> int:
    """M, the number of (token, probability) pairs."""
    return len(distribution.probs) // _PROB_BYTES


def split_distributions(
    num_pairs: Sequence[int], token_ids: bytes, probs: bytes
) -> tuple[SparseDistribution, ...]:  # one for each element of num_pairs
    """The packed arrays cut into distributions. InvalidRequest where they do not hold as many pairs as announced."""
    total = sum(num_pairs)
    for field, packed, width in (("pair_token_ids", token_ids, _ID_BYTES), ("pair_probs", probs, _PROB_BYTES)):
        if len(packed) != total * width:
            raise InvalidRequest(
                field, f"{field} has {len(packed)} bytes; {total} pairs of {width} bytes were announced"
            )
    distributions, start = [], 0
    for count in num_pairs:
        end = start + count
        distributions.append(
            SparseDistribution(
                token_ids[start * _ID_BYTES : end * _ID_BYTES], probs[start * _PROB_BYTES : end * _PROB_BYTES]
            )
        )
        start = end
    return tuple(distributions)
