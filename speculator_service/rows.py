"""What goes into a forward for one session, and what its logits bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saguaro.engine.ragged_batch import Chunk
from saguaro.types import SparseDistribution
from speculator_service.branches import Branches


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk of a session's next forward: a step of `branches`, or trunk where that is None."""

    chunk: Chunk
    branches: Branches | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates of each wanted row of a trunk, best first.

    `own` is the draft's own token after the last row, in rejection mode with its law; None where nobody waits for it.
    """

    candidates: Sequence[Sequence[int]]
    own: tuple[int, tuple[SparseDistribution, ...]] | None = None
