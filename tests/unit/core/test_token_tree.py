"""The tree: the fast builders agree with slow ones that follow the definition token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from saguaro.core.token_tree import TokenTree
from saguaro.types import VerificationOutcome


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    speculation_length = draw(st.integers(0, 6))
    forks = draw(st.lists(st.integers(0, speculation_length), max_size=7))
    outcomes = tuple(VerificationOutcome(fork, bonus_token=draw(st.integers(0, 9))) for fork in forks)
    return TokenTree(draw(st.integers(1, 12)), speculation_length, outcomes)


def owners(tree: TokenTree, step: int) -> list[tuple[str, int, int]]:
    """What lies in each column, written out: ("trunk", token, 0) or ("branch", branch, step)."""
    columns = [("trunk", token, 0) for token in range(tree.prefix_length + tree.speculation_length)]
    for earlier in range(step + 1):
        columns += [("branch", branch, earlier) for branch in range(len(tree.outcomes))]
    return columns


def slow_mask(tree: TokenTree, step: int) -> NDArray[np.bool_]:
    columns = owners(tree, step)
    mask = np.zeros((len(tree.outcomes), len(columns)), dtype=bool)
    for branch, outcome in enumerate(tree.outcomes):
        for column, (kind, owner, _) in enumerate(columns):
            if kind == "trunk":
                mask[branch, column] = owner < tree.prefix_length + outcome.num_accepted
            else:
                mask[branch, column] = owner == branch
    return mask


@settings(deadline=None, derandomize=True)
@given(trees(), st.integers(0, 5))
def test_the_mask_agrees_with_the_slow_one(tree: TokenTree, step: int) -> None:
    mask = tree.mask(step)
    assert mask.dtype == np.bool_
    assert mask.shape == (tree.num_branches, tree.num_columns(step))
    assert np.array_equal(mask, slow_mask(tree, step))


@settings(deadline=None, derandomize=True)
@given(trees(), st.integers(0, 5))
def test_a_token_lies_in_its_own_column(tree: TokenTree, step: int) -> None:
    columns = owners(tree, step)
    assert [columns[column] for column in tree.columns(step)] == [
        ("branch", branch, step) for branch in range(tree.num_branches)
    ]


@settings(deadline=None, derandomize=True)
@given(trees(), st.integers(0, 5))
def test_a_token_sees_exactly_the_tokens_at_all_positions_up_to_its_own(tree: TokenTree, step: int) -> None:
    # Positions by column: the trunk counts on, a branch's token d comes after the trunk's first P + k tokens.
    trunk = np.arange(tree.trunk_length)
    position_of = np.concatenate([trunk, *(tree.positions(earlier) for earlier in range(step + 1))])
    for position, row in zip(tree.positions(step), tree.mask(step), strict=True):
        assert sorted(position_of[row].tolist()) == list(range(position + 1))


def test_a_small_tree_written_out() -> None:
    tree = TokenTree(2, 2, (VerificationOutcome(0, 11), VerificationOutcome(2, 12)))
    assert tree.positions(1).tolist() == [3, 5]
    assert tree.columns(1).tolist() == [6, 7]
    assert tree.mask(1).astype(int).tolist() == [[1, 1, 0, 0, 1, 0, 1, 0], [1, 1, 1, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("fork", [-1, 3])
def test_a_fork_outside_the_speculation_is_an_error(fork: int) -> None:
    with pytest.raises(ValueError, match="forks outside"):
        TokenTree(4, 2, (VerificationOutcome(fork, 1),))
