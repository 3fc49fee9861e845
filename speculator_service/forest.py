"""All trees of one round: the places whose candidates were known first grow first, the others follow."""

from __future__ import annotations

from saguaro.engine.block_manager import BlockTable
from saguaro.types import SpeculationPiece, VerificationOutcome
from speculator_service.branches import Branches, Inheritance


class Forest:
    """The trees that a session grows for the round under verification."""

    def __init__(self) -> None:
        self._trees: list[Branches] = []

    def add(self, tree: Branches) -> None:
        """One more tree; its scratch must begin where `scratch_end` said."""
        self._trees.append(tree)

    def scratch_end(self, trunk_length: int) -> int:
        """The first position of the block table after the trunk and all trees."""
        return self._trees[-1].scratch_end if self._trees else trunk_length

    @property
    def depth(self) -> int:
        """Tokens drafted after the outcomes of the tallest tree."""
        return max((tree.depth for tree in self._trees), default=0)

    @property
    def growing(self) -> list[Branches]:
        """Trees that are not as deep as they should be."""
        return [tree for tree in self._trees if not tree.finished]

    @property
    def kept_bytes(self) -> int:
        """Memory of the logits that are kept for who inherits."""
        return sum(tree.kept_bytes for tree in self._trees)

    def inheritance(self, outcome: VerificationOutcome, table: BlockTable) -> Inheritance | None:
        """What the branch of that outcome leaves, if it was guessed."""
        found = (tree.inheritance(outcome, table) for tree in self._trees)
        return next((left for left in found if left is not None), None)

    def has_news(self, *, finished: bool, urgent: bool) -> bool:
        """Whether there is something to send that is worth a message: all of it, half of it, or what there is in need.

        Half a speculation in time is worth far more than a whole one too late, and a message costs little.
        """
        if all(tree.num_sent == tree.depth for tree in self._trees):
            return False
        first = self._trees[0]
        return finished or urgent or (first.num_sent == 0 and 2 * first.depth >= first.wanted_depth)

    def unsent_pieces(self) -> tuple[SpeculationPiece, ...]:
        """What was drafted since this was last asked."""
        return tuple(piece for tree in self._trees for piece in tree.unsent_pieces())
