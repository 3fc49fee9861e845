"""What the logits of a forward predict, and what those of a trunk bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saguaro.engine.ragged_batch import Chunk
from saguaro.types import SparseDistribution


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates of each wanted row of a trunk, best first.

    `own` is the draft's own token after the last row, in rejection mode with its law; None where nobody waits for it,
    or the sequence's rules leave none.
    """

    candidates: Sequence[Sequence[int]]
    own: tuple[int, tuple[SparseDistribution, ...]] | None = None


def row_positions(chunk: Chunk) -> list[int]:
    """Absolute position that each wanted logits row of the chunk predicts."""
    return [int(position) + 1 for position in chunk.positions[len(chunk.positions) - chunk.num_logits :]]
