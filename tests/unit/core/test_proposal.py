"""A proposal with a missing or broken law cannot be made; the error names field, value and bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from saguaro.core.proposal import Proposal, Proposals
from saguaro.errors import InvalidRequest
from saguaro.types import SparseDistribution

VOCAB = 10
GOOD = ((3, 7, 1), (0.5, 0.25, 0.25))


def distribution(token_ids: Sequence[int], probs: Sequence[float]) -> SparseDistribution:
    return SparseDistribution(np.array(token_ids, dtype="<u4").tobytes(), np.array(probs, dtype="<f2").tobytes())


def test_laws_of_different_widths_are_taken_as_they_are() -> None:
    proposal = Proposal.drawn((7, 2), [distribution(*GOOD), distribution([2], [1.0])], VOCAB)
    batch = Proposals.of([proposal, Proposal.not_drawn(()), Proposal.not_drawn((0,))])
    assert batch.token_ids.tolist() == [7, 2, 0]
    assert batch.num_tokens.tolist() == [2, 0, 1]
    assert batch.laws.of(batch.token_ids).tolist() == [0.25, 1.0, 1.0]


def test_no_draft_tokens_need_no_laws() -> None:
    assert Proposal.drawn((), [], VOCAB).token_ids == ()


def test_a_draft_token_without_its_law_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="2 draft tokens came with 1 distributions") as error:
        Proposal.drawn((7, 3), [distribution(*GOOD)], VOCAB)
    assert error.value.field == "distributions"


@pytest.mark.parametrize(
    ("token_ids", "probs", "field", "message"),
    [
        ((3, 7, 1), (0.5, 0.25, 0.3), "sum of probs", "must be 1 within"),
        ((3, 7, 1), (0.5, 0.25, 0.0), "sum of probs", "must be 1 within"),
        ((3, 7, 1), (0.75, 0.5, -0.25), "probs", "-0.25 must be from 0 to 1"),
        ((3, 7), (2.0, -1.0), "probs", "2.0 must be from 0 to 1"),
        ((3, 7, 1), (0.5, 0.5, float("nan")), "probs", "nan must be from 0 to 1"),
        ((3, 7, 1), (0.5, 0.5, float("inf")), "probs", "inf must be from 0 to 1"),
        ((3, 7, 3), (0.5, 0.25, 0.25), "token_ids", "3 must not come twice"),
        ((3, 10, 1), (0.5, 0.25, 0.25), "token_ids", "10 must be below the vocabulary's 10"),
        ((3, 2**32 - 1, 1), (0.5, 0.25, 0.25), "token_ids", "4294967295 must be below"),
        ((3, 5, 1), (0.5, 0.25, 0.25), "token_ids", "7 was drafted"),
        ((3, 7, 1), (0.5, 0.0, 0.5), "token_ids", "7 was drafted"),
    ],
)
def test_a_broken_law_is_refused_by_token_value_and_bound(
    token_ids: Sequence[int], probs: Sequence[float], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as error:
        Proposal.drawn((3, 7), [distribution(*GOOD), distribution(token_ids, probs)], VOCAB)
    assert error.value.field == f"distributions[1].{field}"


@pytest.mark.parametrize(
    "broken",
    [
        SparseDistribution(b"", b""),
        SparseDistribution(b"\0\0\0\0", b""),
        SparseDistribution(b"\0\0\0\0\0", b"\0\x3c"),
        SparseDistribution(b"\0\0\0\0", b"\0\x3c\0"),
        SparseDistribution(b"\0\0\0\0" * 2, b"\0\x3c"),
    ],
)
def test_bytes_that_are_no_pairs_are_refused(broken: SparseDistribution) -> None:
    with pytest.raises(InvalidRequest, match="bytes of token ids") as error:
        Proposal.drawn((0,), [broken], VOCAB)
    assert error.value.field == "distributions[0]"
