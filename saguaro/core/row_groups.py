"""One batch, two ways to go on: each part's rows go to the function that is for it, in one call a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")
Result = TypeVar("Result")


def by_kind(
    parts: Sequence[Part],
    rows: Tensor,  # [sum of num_rows, ...], part after part
    num_rows: Sequence[int],  # of each part
    is_first: Sequence[bool],  # whether a part is for `first`
    first: Callable[[Sequence[Part], Tensor], Sequence[Result]],
    second: Callable[[Sequence[Part], Tensor], Sequence[Result]],
) -> list[Result]:  # one a part
    """Each function gets its parts and their rows, in order, and has a result for each; no copy where all are its."""
    if not any(is_first):
        return list(second(parts, rows))
    if all(is_first):
        return list(first(parts, rows))
    split: tuple[Tensor, ...] = torch.split(rows, list(num_rows))
    results = {
        kind: iter(
            function(
                [part for part, item in zip(parts, is_first, strict=True) if item is kind],
                torch.cat([own for own, item in zip(split, is_first, strict=True) if item is kind]),
            )
        )
        for kind, function in ((True, first), (False, second))
    }
    return [next(results[item]) for item in is_first]
