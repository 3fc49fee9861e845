"""One sequence at the speculator: its trunk, the outcomes guessed for the round under verification, their branches.

The *trunk* is what the verifier works on: the committed prefix (last bonus token included) and the speculation being
verified. A round goes through these phases, one forward each:

  extend   the trunk tokens whose KV is missing; each row from the end of the prefix on yields ranked candidates
  draft    just in time only: the trunk grows by the draft's own best token until it holds a whole speculation
  tree     the guessed outcomes are decoded side by side, one token a branch and forward

A commit may come at any moment and supersedes whatever is in work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from saguaro.core.fan_out import candidates_for
from saguaro.core.token_tree import TokenTree
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import InvalidRequest
from saguaro.types import (
    CommitRound,
    JustInTime,
    OpenSequence,
    SpeculationEntries,
    SpeculationPiece,
    TokenIds,
    VerificationOutcome,
)

_BRIEF_NS = 2_000_000  # of rounds as short as this nothing can be foretold

FanOut = Callable[[int], tuple[int, ...]]  # speculation length L -> F_0 .. F_L


class StaleCommit(Exception):
    """A commit of a round that is over; it is dropped and counted."""


class UnknownRound(Exception):
    """A commit of a round that this session never saw begin; the sequence must be opened again."""


@dataclass(slots=True)
class Branches:
    """The guessed outcomes of one round and the tokens drafted after each, all at the same depth."""

    tree: TokenTree
    wanted_depth: int
    drafted: list[list[int]] = field(default_factory=list)
    num_sent: int = 0
    visible: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        self.drafted = [[] for _ in self.outcomes]
        # Of the last step; that of an earlier one is its left part, since later tokens come after.
        self.visible = self.tree.mask(self.wanted_depth - 1) if self.outcomes and self.wanted_depth > 0 else None

    @property
    def outcomes(self) -> tuple[VerificationOutcome, ...]:
        return self.tree.outcomes

    @property
    def depth(self) -> int:
        """Tokens drafted after each outcome."""
        return len(self.drafted[0]) if self.drafted else self.wanted_depth

    @property
    def finished(self) -> bool:
        return self.depth >= self.wanted_depth


class Session:
    """State of one open sequence. Not thread-safe: the scheduler's thread owns it."""

    def __init__(
        self, opened: OpenSequence, table: BlockTable, *, lookahead: int, context_limit: int, now_ns: int
    ) -> None:
        self.sequence_id = opened.sequence_id
        self.epoch = opened.epoch
        self.sampling = opened.sampling
        self.round = opened.round  # the round under verification, whose outcome is guessed
        self.prefix = list(opened.token_ids)
        self.speculation: list[int] = []
        self.lookahead = lookahead  # K wanted for this round's speculations; 0 drafts nothing
        self.just_in_time = 0  # tokens of the speculation that the verifier waits for; 0: it does not wait
        self.was_hit = False  # the speculation under verification came from the cache
        self.table = table
        self.num_cached = table.match_prefix(self.prefix)
        self.context_limit = context_limit
        self.touched_ns = now_ns  # when the verifier last spoke of this sequence
        self.taken_ns: int | None = None  # when the round was taken up
        self.time_allowed_ns = 0  # from a commit's arrival until its entries must go out to be there in time
        self.deadline_ns = 0  # the end of that time
        self._last_outcome: VerificationOutcome | None = None
        self._ranked: list[Sequence[int]] = []  # candidates for exactly k accepted, k = 0 ..
        self._branches: Branches | None = None
        self._unsent_draft: SpeculationEntries | None = None

    # --- what the verifier says ---------------------------------------------------------------------------------------

    def commit(self, commit: CommitRound, lookahead: int, now_ns: int) -> None:
        """Take an outcome and what is verified next, with speculations of `lookahead` tokens wanted.

        Raises StaleCommit, UnknownRound, or InvalidRequest for a commit that breaks the contract.
        """
        if commit.round == self.round:
            accepted = commit.outcome.num_accepted
            if accepted > len(self.speculation):
                raise InvalidRequest(
                    "num_accepted",
                    f"{accepted} tokens accepted of a speculation of {len(self.speculation)}, round {commit.round}",
                )
            self.num_cached = min(self.num_cached, len(self.prefix) + accepted)
            self.prefix += [*self.speculation[:accepted], commit.outcome.bonus_token]
            self.round += 1
        elif commit.round == self.round - 1 and commit.outcome == self._last_outcome:
            self.num_cached = min(self.num_cached, len(self.prefix) - 1)
        elif commit.round < self.round:
            raise StaleCommit
        else:
            raise UnknownRound
        self._last_outcome = commit.outcome
        self.lookahead = lookahead
        self.just_in_time = self._take_next(commit.speculation)
        self._ranked.clear()
        self._branches = None
        self._unsent_draft = None
        self.touched_ns = now_ns
        self.taken_ns = None
        # The tree's scratch slots go back; what the verifier made final may be shared with other sequences.
        self.table.truncate(self.num_cached)
        self.table.commit(self.prefix, self.num_cached)

    def _take_next(self, speculation: TokenIds | JustInTime) -> int:
        """Set what is verified next; returns the tokens to draft for it just in time."""
        if isinstance(speculation, JustInTime):
            self.speculation, self.was_hit = [], False
            return min(speculation.lookahead, self.lookahead)
        self.speculation, self.was_hit = list(speculation), bool(speculation)
        return 0

    # --- what there is to do ------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a forward would bring this round further."""
        return self.lookahead > 0 and (self._branches is None or not self._branches.finished)

    def held_until_ns(self, now_ns: int, next_step_ns: int) -> int:
        """Until when the session should rest; not after `now_ns` if it should not.

        Where the next step of its tree would end too late for the verification under way, the outcome is awaited
        instead: a step that is at work then only delays what is drafted for it. The outcome may itself be late.
        """
        branches = self._branches
        if branches is None or branches.depth == 0 or self.time_allowed_ns < _BRIEF_NS:
            return now_ns
        if now_ns + next_step_ns <= self.deadline_ns:
            return now_ns
        return self.deadline_ns + self.time_allowed_ns // 2

    @property
    def room(self) -> int:
        """Tokens that may follow the trunk before the draft's context ends."""
        return self.context_limit - len(self.prefix) - len(self.speculation)

    def next_chunk(self, chunk_tokens: int) -> Chunk:
        """The tokens of the next forward. Raises OutOfBlocks and changes nothing if their KV has no room."""
        return self._trunk_chunk(chunk_tokens) if self._branches is None else self._tree_chunk(self._branches)

    def _trunk_chunk(self, chunk_tokens: int) -> Chunk:
        trunk = [*self.prefix, *self.speculation]
        end = min(len(trunk), self.num_cached + chunk_tokens)
        self.table.reserve(end)
        first_ranked = max(self.num_cached, len(self.prefix) - 1)
        return Chunk.causal(trunk[self.num_cached : end], self.num_cached, self.table, max(0, end - first_ranked))

    def _tree_chunk(self, branches: Branches) -> Chunk:
        trunk_length = len(self.prefix) + len(self.speculation)
        step, width = branches.depth, len(branches.outcomes)
        assert branches.visible is not None
        if step == 0:
            self.table.reserve(trunk_length + branches.wanted_depth * width)
            token_ids = [outcome.bonus_token for outcome in branches.outcomes]
        else:
            token_ids = [tokens[-1] for tokens in branches.drafted]
        context_slots = self.table.slots(0, trunk_length + (step + 1) * width)
        return Chunk(
            token_ids=token_ids,
            positions=branches.tree.positions(step),
            write_slots=context_slots[-width:],
            context_slots=context_slots,
            visible=branches.visible[:, : branches.tree.num_columns(step)],
            num_logits=width,
        )

    def row_positions(self, chunk: Chunk) -> list[int]:
        """Absolute position that each wanted logits row of the chunk predicts."""
        return [int(position) + 1 for position in chunk.positions[len(chunk.positions) - chunk.num_logits :]]

    @property
    def in_tree(self) -> bool:
        """Whether the next chunk is a step of the tree (one token a branch) and not trunk."""
        return self._branches is not None

    # --- what a forward brought ---------------------------------------------------------------------------------------

    def take_trunk(self, chunk: Chunk, ranked: Sequence[Sequence[int]], fan_out: FanOut) -> None:
        """Trunk tokens were computed; `ranked` holds the candidates of each wanted row, best first."""
        self.num_cached += len(chunk.token_ids)
        self._ranked += ranked
        if self.num_cached < len(self.prefix) + len(self.speculation):
            return
        if self.just_in_time:
            self.speculation.append(self._ranked[-1][0])
            if len(self.speculation) == self.just_in_time or self.room == 0:
                self._finish_just_in_time()
            return
        self._grow_branches(fan_out)

    def _finish_just_in_time(self) -> None:
        """The speculation asked for is whole: hand it out, and guess the outcome of its verification meanwhile."""
        assert self._last_outcome is not None
        self.just_in_time = 0
        piece = SpeculationPiece(self._last_outcome, 0, tuple(self.speculation))
        self._unsent_draft = SpeculationEntries(self.sequence_id, self.epoch, self.round - 1, (piece,), complete=True)

    def rank_of_bonus(self, outcome: VerificationOutcome) -> int | None:
        """Rank, from 1, that the bonus token had among the candidates of its place; None if it was not ranked."""
        if outcome.num_accepted >= len(self._ranked):
            return None
        drafted = self.speculation[outcome.num_accepted] if outcome.num_accepted < len(self.speculation) else None
        ranked = [token for token in self._ranked[outcome.num_accepted] if token != drafted]
        return ranked.index(outcome.bonus_token) + 1 if outcome.bonus_token in ranked else None

    def has_ranked(self, outcome: VerificationOutcome) -> bool:
        """Whether this outcome's place was reached, so that its rank says something."""
        return outcome.num_accepted < len(self._ranked)

    def _grow_branches(self, fan_out: FanOut) -> None:
        outcomes = [
            VerificationOutcome(num_accepted, bonus)
            for num_accepted, (count, ranked) in enumerate(
                zip(fan_out(len(self.speculation)), self._ranked, strict=True)
            )
            for bonus in candidates_for(
                ranked,
                self.speculation[num_accepted] if num_accepted < len(self.speculation) else None,
                count,
            )
        ]
        tree = TokenTree(len(self.prefix), len(self.speculation), tuple(outcomes))
        self._branches = Branches(tree, wanted_depth=min(self.lookahead, self.room) if outcomes else 0)

    def take_tree(self, tokens: Sequence[int]) -> None:
        """One more token of every branch, in the order of the tree's branches."""
        assert self._branches is not None
        for drafted, token in zip(self._branches.drafted, tokens, strict=True):
            drafted.append(token)

    def entries_to_send(self, now_ns: int, next_step_ns: int) -> SpeculationEntries | None:
        """What is worth a message now: a finished draft or tree, half a tree, or what there is when time runs out.

        Half a speculation in time is worth far more than a whole one too late, and a message costs little.
        """
        if self._unsent_draft is not None:
            entries, self._unsent_draft = self._unsent_draft, None
            self.deadline_ns = now_ns + self.time_allowed_ns  # the verification begins when this arrives
            return self._timed(entries, now_ns)
        branches = self._branches
        if branches is None or branches.depth == branches.num_sent:
            return None
        is_urgent = now_ns + 2 * next_step_ns >= self.deadline_ns  # after the next step it may be too late
        is_first_half = branches.num_sent == 0 and 2 * branches.depth >= branches.wanted_depth
        if not (branches.finished or is_urgent or is_first_half):
            return None
        pieces = tuple(
            SpeculationPiece(outcome, branches.num_sent, tuple(tokens[branches.num_sent :]))
            for outcome, tokens in zip(branches.outcomes, branches.drafted, strict=True)
        )
        branches.num_sent = branches.depth
        entries = SpeculationEntries(self.sequence_id, self.epoch, self.round, pieces, complete=branches.finished)
        return self._timed(entries, now_ns)

    def _timed(self, entries: SpeculationEntries, now_ns: int) -> SpeculationEntries:
        drafting_ns = now_ns - (self.taken_ns if self.taken_ns is not None else now_ns)
        return SpeculationEntries(
            entries.sequence_id, entries.epoch, entries.round, entries.pieces, entries.complete, drafting_ns
        )
