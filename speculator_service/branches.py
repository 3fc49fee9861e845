"""The guessed outcomes that grow side by side: one token tree, its place in the block table, what it has brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saguaro.core.token_tree import TokenTree
from saguaro.engine.block_manager import BlockTable, SlotIds
from saguaro.engine.grammar import TokenMasks
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import SparseDistribution, SpeculationPiece, TokenIds, VerificationOutcome
from speculator_service.draft_constraint import BranchConstraints


@dataclass(frozen=True, slots=True)
class Drafted:
    """One token a branch; in rejection mode with the law that each was drawn from."""

    token_ids: Sequence[int]
    laws: Sequence[SparseDistribution] = ()


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a branch that came true leaves to the next round: what it drafted, and what was computed for that."""

    tokens: list[int]  # drafted after the bonus token
    laws: list[SparseDistribution]  # of these tokens; none in coupled mode
    slots: SlotIds  # [n]: KV of the bonus token and of the n - 1 tokens drafted after it
    logits: Tensor  # [n, vocab]: row i is what the draft says after the i-th of them


@dataclass(slots=True)
class Branches:
    """The branches of one tree, all at the same depth. Their KV begins at position `scratch_start` of the table."""

    tree: TokenTree
    speculation: TokenIds  # that the tree forks from
    wanted_depth: int
    scratch_start: int
    constraints: BranchConstraints | None
    drafted: list[list[int]] = field(default_factory=list)
    laws: list[list[SparseDistribution]] = field(default_factory=list)  # of what was drafted; none in coupled mode
    num_sent: int = 0
    _visible: NDArray[np.bool_] | None = None
    _logits: list[Tensor] = field(default_factory=list)  # of each step, [B, vocab]; none where they would be too much
    _branch_of: dict[VerificationOutcome, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drafted = [[] for _ in self.tree.outcomes]
        self.laws = [[] for _ in self.tree.outcomes]
        self._branch_of = {outcome: branch for branch, outcome in enumerate(self.tree.outcomes)}
        # Of the last step; that of an earlier one is its left part, since later tokens come after.
        self._visible = self.tree.mask(self.wanted_depth - 1)

    @property
    def depth(self) -> int:
        """Tokens drafted after each outcome."""
        return len(self.drafted[0])

    @property
    def kept_bytes(self) -> int:
        """Memory of the logits that are kept for who inherits."""
        return sum(logits.nbytes for logits in self._logits)

    @property
    def finished(self) -> bool:
        return self.depth >= self.wanted_depth

    @property
    def scratch_end(self) -> int:
        """Position after the last that the branches may use."""
        return self.scratch_start + self.wanted_depth * self.tree.num_branches

    def next_chunk(self, table: BlockTable) -> Chunk:
        """One more token of every branch. Raises OutOfBlocks and changes nothing if their KV has no room."""
        tree, step, width = self.tree, self.depth, self.tree.num_branches
        assert self._visible is not None
        if step == 0:
            table.reserve(self.scratch_end)
            token_ids = [outcome.bonus_token for outcome in tree.outcomes]
        else:
            token_ids = [tokens[-1] for tokens in self.drafted]
        own = table.slots(self.scratch_start, self.scratch_start + (step + 1) * width)
        if self.scratch_start == tree.trunk_length:
            context_slots = table.slots(0, self.scratch_start + (step + 1) * width)
        else:
            context_slots = np.concatenate((table.slots(0, tree.trunk_length), own))
        return Chunk(
            token_ids=token_ids,
            positions=tree.positions(step),
            write_slots=own[-width:],
            context_slots=context_slots,
            visible=self._visible[:, : tree.num_columns(step)],
            num_logits=width,
        )

    def leading_to(self) -> list[TokenIds]:
        """Each branch's tokens after the prefix: those accepted of the speculation, the bonus token, those drafted."""
        return [
            (*self.speculation[: outcome.num_accepted], outcome.bonus_token, *drafted)
            for outcome, drafted in zip(self.tree.outcomes, self.drafted, strict=True)
        ]

    def masks(self) -> TokenMasks | None:
        """What the grammar allows each branch to say next."""
        return None if self.constraints is None else self.constraints.masks()

    def take(self, following: Drafted, logits: Tensor | None) -> None:
        """What follows, and the logits [B, vocab] behind it, where they may be kept."""
        for drafted, token in zip(self.drafted, following.token_ids, strict=True):
            drafted.append(token)
        if self.constraints is not None:
            self.constraints.advance(following.token_ids)
        if following.laws:
            for laws, law in zip(self.laws, following.laws, strict=True):
                laws.append(law)
        if logits is not None and len(self._logits) == self.depth - 1:
            self._logits.append(logits)

    def unsent_pieces(self) -> list[SpeculationPiece]:
        """What was drafted since this was last asked."""
        start, self.num_sent = self.num_sent, self.depth
        if start == self.depth:
            return []
        return [
            SpeculationPiece(outcome, start, tuple(tokens[start:]), tuple(laws[start:]))
            for outcome, tokens, laws in zip(self.tree.outcomes, self.drafted, self.laws, strict=True)
        ]

    def inheritance(self, outcome: VerificationOutcome, table: BlockTable) -> Inheritance | None:
        """What the branch of that outcome leaves; None where there is none, or its logits were not kept."""
        branch, count = self._branch_of.get(outcome), len(self._logits)
        if branch is None or not count:
            return None
        scratch = table.slots(self.scratch_start, self.scratch_end)
        return Inheritance(
            tokens=self.drafted[branch],
            laws=self.laws[branch],
            slots=scratch[np.arange(count) * self.tree.num_branches + branch],
            logits=torch.stack([rows[branch] for rows in self._logits]),
        )
