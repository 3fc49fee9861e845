"""From the draft's logits to its tokens and guesses: by which rules, with which noise, and from which laws.

In coupled mode a token is the likely winner of the race that the target will run. In rejection mode it is drawn from a
law that travels with it, and guesses are ranked without noise: `saguaro.core.draft_law`. One batch may hold both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.candidates import RankedCandidates, draft_tokens, ranked_candidates
from saguaro.core.draft_law import DrawnTokens, draft, guesses
from saguaro.core.penalties import apply_rules, ruled_rows
from saguaro.core.row_groups import by_kind
from saguaro.core.row_sampling import RowSampling
from saguaro.engine.grammar import TokenMasks
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import SamplingParams, SparseDistribution, TokenIds
from speculator_service.branches import Branches, Drafted
from speculator_service.rows import Ranked, row_positions
from speculator_service.session import Session
from speculator_service.stream import Stream
from speculator_service.unknown_ids import readable

_LEAST_RANKED = 16  # ranking more costs little, and tells of what rank the bonus token has


@dataclass(frozen=True, slots=True)
class Growing:
    """A step of one tree of a session."""

    stream: Stream
    session: Session
    chunk: Chunk
    branches: Branches


@dataclass(frozen=True, slots=True)
class Ask:
    """Rows of one session that are to be ranked, and the positions that they predict."""

    stream: Stream
    session: Session
    positions: list[int]

    @property
    def num_candidates(self) -> int:
        """As many as an allocation may want at one place, the drafted token included: more where places are few."""
        budget = self.stream.budget
        return min(budget, max(_LEAST_RANKED, 2 * budget // max(len(self.positions), 1))) + 1

    def trunks(self) -> list[TokenIds]:
        """For each position the trunk's tokens after the prefix and before it."""
        session = self.session
        read = readable(session.speculation, session.vocab_size)
        return [tuple(read[: position - len(session.prefix)]) for position in self.positions]

    @property
    def masks(self) -> TokenMasks | None:
        """What the session's grammar allows at each position."""
        session = self.session
        return session.constraint.masks(session.speculation, [item - len(session.prefix) for item in self.positions])


class DraftRows:
    """Chooses and ranks the tokens of every row of a batch."""

    def __init__(self, device: torch.device, vocab_size: int) -> None:
        self._device = device
        self._vocab_size = vocab_size
        # Rows at temperature 0 need no parameters, whatever their number.
        self._greedy = RowSampling.build([SamplingParams()], [0], device)

    def grow(
        self,
        trees: Sequence[Growing],
        logits: Tensor,  # [rows, vocab], one row a branch, tree after tree
    ) -> list[Drafted]:
        """The next token of every branch, tree by tree."""
        ruled = ruled_rows((tree.session.rules, tree.chunk.num_logits, tree.branches.leading_to) for tree in trees)
        num_rows = [tree.chunk.num_logits for tree in trees]
        is_drawn = [tree.session.draws_drafts for tree in trees]
        parts = ((tree.branches.masks(), tree.chunk.num_logits) for tree in trees)
        masks = TokenMasks.joined(parts, self._device)
        return by_kind(trees, apply_rules(logits, ruled, masks), num_rows, is_drawn, self._draw, self._race)

    def rank(
        self,
        asks: Sequence[Ask],
        logits: Sequence[Tensor],  # each [rows, vocab], those of the asks in order
    ) -> list[Ranked]:
        """Candidates of all rows, for each who asks."""
        if not any(ask.positions for ask in asks):
            return [Ranked([]) for _ in asks]
        ruled = ruled_rows((ask.session.rules, len(ask.positions), ask.trunks) for ask in asks)
        masks = TokenMasks.joined(((ask.masks, len(ask.positions)) for ask in asks), self._device)
        processed = apply_rules(logits[0] if len(logits) == 1 else torch.cat(tuple(logits)), ruled, masks)
        num_rows = [len(ask.positions) for ask in asks]
        is_drawn = [ask.session.draws_drafts for ask in asks]
        return by_kind(asks, processed, num_rows, is_drawn, self._guess, self._foretell)

    # --- coupled mode, and temperature 0 in any -----------------------------------------------------------------------

    def _race(self, trees: Sequence[Growing], processed: Tensor) -> list[Drafted]:
        tokens = draft_tokens(processed, self._of_trees(trees)).tolist()
        return [Drafted(tokens[start:end]) for start, end in _ranges([tree.chunk.num_logits for tree in trees])]

    def _foretell(self, asks: Sequence[Ask], processed: Tensor) -> list[Ranked]:
        params = [ask.session.sampling for ask in asks for _ in ask.positions]
        positions = [position for ask in asks for position in ask.positions]
        best = ranked_candidates(processed, self._sampling(params, positions), self._count(asks))
        return [
            Ranked(rows, (rows[-1][0], ()) if rows and rows[-1] and ask.session.just_in_time else None)
            for ask, rows in zip(asks, _candidates(asks, best), strict=True)
        ]

    # --- rejection mode -----------------------------------------------------------------------------------------------

    def _draw(self, trees: Sequence[Growing], processed: Tensor) -> list[Drafted]:
        num_rows = [tree.chunk.num_logits for tree in trees]
        places = [(tree.stream, tree.session, tree.branches.depth) for tree in trees]
        token_ids, laws = self._drawn(processed, self._of_trees(trees), places, num_rows)
        return [Drafted(token_ids[start:end], laws[start:end]) for start, end in _ranges(num_rows)]

    def _guess(self, asks: Sequence[Ask], processed: Tensor) -> list[Ranked]:
        candidates = _candidates(asks, guesses(processed, self._count(asks)))
        own = self._own(asks, processed)
        return [Ranked(rows, own.get(index)) for index, rows in enumerate(candidates)]

    def _own(self, asks: Sequence[Ask], processed: Tensor) -> dict[int, tuple[int, tuple[SparseDistribution, ...]]]:
        """By index of those who draft just in time: a token drawn after their last row, and its law."""
        ends = itertools.accumulate(len(ask.positions) for ask in asks)
        waiting = [
            (index, end - 1)
            for index, (ask, end) in enumerate(zip(asks, ends, strict=True))
            if ask.positions and ask.session.just_in_time
        ]
        if not waiting:
            return {}
        last = [asks[index] for index, _ in waiting]
        sampling = self._sampling([ask.session.sampling for ask in last], [ask.positions[-1] for ask in last])
        places = [(ask.stream, ask.session, len(ask.session.speculation)) for ask in last]
        token_ids, laws = self._drawn(processed[[row for _, row in waiting]], sampling, places, [1] * len(last))
        return {index: (token, (law,)) for (index, _), token, law in zip(waiting, token_ids, laws, strict=True)}

    def _drawn(
        self,
        processed: Tensor,  # [rows, vocab]
        sampling: RowSampling,
        places: Sequence[tuple[Stream, Session, int]],  # of consecutive rows: whose, and which place in its speculation
        num_rows: Sequence[int],  # so many for each of `places`
    ) -> tuple[list[int], list[SparseDistribution]]:
        scales = [stream.scale_for(session) for stream, session, _ in places]
        fan_out: list[int] = []
        if any(scale < 1 for scale in scales):
            counts = [stream.fan_out_at(session, place) for stream, session, place in places]
            fan_out = [count for count, repeats in zip(counts, num_rows, strict=True) for _ in range(repeats)]
        repeated = [scale for scale, repeats in zip(scales, num_rows, strict=True) for _ in range(repeats)]
        drawn: DrawnTokens = draft(processed, sampling, fan_out, repeated)
        return drawn.token_ids.tolist(), drawn.laws.pack()

    # --- both ---------------------------------------------------------------------------------------------------------

    def _of_trees(self, trees: Sequence[Growing]) -> RowSampling:
        params = [tree.session.sampling for tree in trees for _ in range(tree.chunk.num_logits)]
        return self._sampling(params, [item for tree in trees for item in row_positions(tree.chunk)])

    def _sampling(self, params: list[SamplingParams], positions: list[int]) -> RowSampling:
        if all(row.temperature == 0.0 for row in params):
            return self._greedy
        return RowSampling.build(params, positions, self._device)

    def _count(self, asks: Sequence[Ask]) -> int:
        return min(max(ask.num_candidates for ask in asks), self._vocab_size)


def _candidates(asks: Sequence[Ask], best: RankedCandidates) -> list[list[list[int]]]:
    """The valid ones of each row, for each who asks."""
    rows = [ids[:valid] for ids, valid in zip(best.token_ids.tolist(), best.num_valid.tolist(), strict=True)]
    return [rows[start:end] for start, end in _ranges([len(ask.positions) for ask in asks])]


def _ranges(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each part of what lies end to end."""
    return list(itertools.pairwise(itertools.accumulate(lengths, initial=0)))
