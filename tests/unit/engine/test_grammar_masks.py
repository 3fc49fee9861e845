"""Masks of parts, put together for a batch."""

from __future__ import annotations

import torch

from saguaro.engine.grammar import TokenMasks


def test_joined_masks_fall_on_the_rows_of_their_parts() -> None:
    one = TokenMasks.of_all_rows(torch.tensor([[0b001], [0b010]], dtype=torch.int32))
    other = TokenMasks(torch.tensor([1]), torch.tensor([[0b100]], dtype=torch.int32))
    joined = TokenMasks.joined([(None, 1), (one, 2), (None, 2), (other, 3)])
    assert joined is not None
    assert joined.rows.tolist() == [1, 2, 6]
    finite = joined.apply(torch.zeros(8, 3)).isfinite()
    assert finite[[1, 2, 6]].tolist() == [[True, False, False], [False, True, False], [False, False, True]]
    assert finite[[0, 3, 4, 5, 7]].all()


def test_parts_without_masks_have_none_together() -> None:
    assert TokenMasks.joined([(None, 4), (None, 1)]) is None
