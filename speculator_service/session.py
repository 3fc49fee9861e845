"""One sequence at the speculator: its trunk, the outcomes guessed for the round under verification, their branches.

The *trunk* is what the verifier works on: the committed prefix (last bonus token included) and the speculation being
verified. A round goes through these phases:

  inherit  where the outcome was one of those guessed, its branch has computed most of the trunk already: KV and logits
           are taken over, and nothing is computed twice
  extend   the trunk tokens whose KV is missing; each row from the end of the prefix on yields ranked candidates
  draft    just in time only: the trunk grows by the draft's own best token until it holds a whole speculation
  tree     the guessed outcomes are decoded side by side, one token a branch and forward; a place whose candidates are
           known begins at once, beside the extend of the others

A commit may come at any moment and supersedes whatever is in work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from saguaro.core.acceptance import draws_drafts
from saguaro.core.fan_out import likely_outcomes, rank_of_bonus
from saguaro.core.penalties import SequenceRules
from saguaro.core.prefix_hash import EMPTY, extended_hash
from saguaro.core.token_tree import TokenTree
from saguaro.engine.block_manager import BlockTable, SlotIds
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import InvalidRequest
from saguaro.types import (
    CommitRound,
    JustInTime,
    OpenSequence,
    SparseDistribution,
    SpeculationEntries,
    SpeculationPiece,
    TokenIds,
    VerificationOutcome,
)
from speculator_service.branches import Branches
from speculator_service.commits import Diverged, StaleCommit, UnknownRound
from speculator_service.draft_constraint import DraftConstraint
from speculator_service.forest import Forest
from speculator_service.round_clock import RoundClock
from speculator_service.rows import Ranked
from speculator_service.unknown_ids import applicable, readable

FanOut = Callable[[int], tuple[int, ...]]  # speculation length L -> F_0 .. F_L
CopyKV = Callable[[SlotIds, SlotIds], None]  # from, to


class Session:
    """State of one open sequence. Not thread-safe: the scheduler's thread owns it."""

    def __init__(
        self,
        opened: OpenSequence,
        table: BlockTable,
        *,
        lookahead: int,
        context_limit: int,
        vocab_size: int,
        copy_kv: CopyKV,
        now_ns: int,
        constraint: DraftConstraint,
    ) -> None:
        self.sequence_id = opened.sequence_id
        self.epoch = opened.epoch
        self.sampling = applicable(opened.sampling, vocab_size)
        self.draws_drafts = draws_drafts(opened.sampling)
        self.round = opened.round  # the round under verification, whose outcome is guessed
        self.prefix = list(opened.token_ids)
        self.prefix_hash = extended_hash(EMPTY, self.prefix)
        self.vocab_size = vocab_size
        read = readable(opened.token_ids, vocab_size)
        self.rules = SequenceRules.of(self.sampling, read, opened.num_prompt_tokens)
        self.constraint = constraint
        self.speculation: list[int] = []
        self.lookahead = lookahead  # K wanted for this round's speculations; 0 drafts nothing
        self.just_in_time = 0  # tokens of the speculation that the verifier waits for; 0: it does not wait
        self.was_hit = False  # the speculation under verification came from the cache
        self.table = table
        self.num_cached = 0
        self.clock = RoundClock(now_ns)
        self.served = 0  # number of the last batch that had work of it
        self.context_limit = context_limit
        self.inherited: Tensor | None = None  # [n, vocab]: logits of the trunk's first rows, not yet ranked
        self._copy_kv = copy_kv
        self._last_outcome: VerificationOutcome | None = None
        self._ranked: list[Sequence[int]] = []  # candidates for exactly k accepted, k = 0 ..
        self._fan_out: tuple[int, ...] | None = None  # of this round, once its first outcomes were guessed
        self._num_guessed = 0  # places k whose outcomes were guessed
        self._laws: list[SparseDistribution] = []  # rejection mode: of the speculation's first tokens, if drawn here
        self._forest = Forest()
        self._unsent_draft: SpeculationEntries | None = None

    # --- what the verifier says ---------------------------------------------------------------------------------------

    def commit(self, commit: CommitRound, lookahead: int, now_ns: int) -> None:
        """Take an outcome and what is verified next, with speculations of `lookahead` tokens wanted.

        Raises StaleCommit, UnknownRound, Diverged, or InvalidRequest for a commit that breaks the contract.
        """
        is_chosen_anew = commit.round == self.round - 1 and commit.outcome == self._last_outcome
        if commit.round == self.round:
            self._advance(commit.outcome)
        elif not is_chosen_anew:
            raise StaleCommit if commit.round < self.round else UnknownRound
        if commit.prefix_hash not in (None, self.prefix_hash):
            raise Diverged
        if is_chosen_anew and not self.just_in_time and commit.speculation == tuple(self.speculation):
            return  # as was taken for granted: what grows for it goes on growing, as long as was wanted
        self.lookahead = lookahead
        self.clock.begin_round(now_ns)
        self._take_next(commit.speculation)
        self._fan_out, self._num_guessed, self._forest = None, 0, Forest()
        # The trees' scratch slots go back; what the verifier made final may be shared with other sequences.
        self.table.truncate(self.num_cached)
        self.table.commit(self.prefix, min(self.num_cached, len(self.prefix) - 1))

    def _advance(self, outcome: VerificationOutcome) -> None:
        """The round ended so; what its branch computed for the next one is taken over."""
        if outcome.num_accepted > len(self.speculation):
            raise InvalidRequest(
                "num_accepted",
                f"{outcome.num_accepted} tokens accepted of a speculation of {len(self.speculation)}, "
                f"round {self.round}",
            )
        self.num_cached = min(self.num_cached, len(self.prefix) + outcome.num_accepted)
        committed = [*self.speculation[: outcome.num_accepted], outcome.bonus_token]
        self.prefix += committed
        self.prefix_hash = extended_hash(self.prefix_hash, committed)
        if self.rules is not None:
            self.rules.extend(readable(committed, self.vocab_size))
        self.constraint.extend(committed)
        self.round += 1
        self.speculation, self._laws, self._ranked, self.inherited = [], [], [], None
        self._last_outcome = outcome
        left = self._forest.inheritance(outcome, self.table)
        if left is not None and self.num_cached == len(self.prefix) - 1:
            self.speculation, self._laws, self.inherited = list(left.tokens), list(left.laws), left.logits
            end = self.num_cached + len(left.slots)
            self._copy_kv(left.slots, self.table.slots(self.num_cached, end))
            self.num_cached = end

    def _take_next(self, speculation: TokenIds | JustInTime) -> None:
        """Set what is verified next, or begin to draft it; what of it is known already stays known."""
        self._unsent_draft = None
        if isinstance(speculation, JustInTime):
            self.just_in_time, self.was_hit = min(speculation.lookahead, self.lookahead), False
            # What was told to be verified has no law here, and must not be told back as drawn.
            self._drop_after(min(self.just_in_time, len(self._laws)) if self.draws_drafts else self.just_in_time)
            if len(self.speculation) == self.just_in_time:
                self._finish_just_in_time()
        else:
            self.just_in_time, self.was_hit = 0, bool(speculation)
            pairs = zip(self.speculation, speculation, strict=False)
            self._drop_after(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
            self.speculation = list(speculation)

    def _drop_after(self, num_kept: int) -> None:
        """Forget the tokens of the speculation after the first `num_kept`, and what was computed of them."""
        del self.speculation[num_kept:], self._laws[num_kept:]
        num_kept = len(self.speculation)
        self.num_cached = min(self.num_cached, len(self.prefix) + num_kept)
        del self._ranked[num_kept + 1 :]
        if self.inherited is not None:
            self.inherited = self.inherited[: num_kept + 1]

    # --- what there is to do ------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a forward would bring this round further."""
        return self.lookahead > 0 and (not self._all_guessed or bool(self._forest.growing))

    @property
    def _all_guessed(self) -> bool:
        return not self.just_in_time and self._num_guessed == len(self.speculation) + 1

    def held_until_ns(self, now_ns: int, next_step_ns: int) -> int:
        """Until when the session should rest, see `RoundClock.held_until_ns`."""
        if self._forest.depth == 0 or not self._all_guessed:
            return now_ns
        return self.clock.held_until_ns(now_ns, next_step_ns)

    @property
    def room(self) -> int:
        """Tokens that may follow the trunk before the draft's context ends."""
        return self.context_limit - self.trunk_length

    @property
    def trunk_length(self) -> int:
        """Tokens of the prefix and of the speculation under verification."""
        return len(self.prefix) + len(self.speculation)

    @property
    def num_missing(self) -> int:
        """Tokens of the trunk whose KV is not there."""
        return max(self.trunk_length - self.num_cached, 0)

    @property
    def forest(self) -> Forest:
        """The trees of this round."""
        return self._forest

    def adopt_prefix(self) -> None:
        """Take over blocks that hold more of the prefix, which others may have computed meanwhile."""
        if self.table.is_sealed:
            self.num_cached = self.table.match_prefix(self.prefix)

    def next_trunk(self, num_tokens: int) -> Chunk:
        """The next `num_tokens` missing tokens. Raises OutOfBlocks and changes nothing if their KV has no room."""
        start, end, length = self.num_cached, self.num_cached + num_tokens, len(self.prefix)
        self.table.reserve(end)
        tokens = [*self.prefix[start:end], *self.speculation[max(start - length, 0) : max(end - length, 0)]]
        return Chunk.causal(readable(tokens, self.vocab_size), start, self.table, max(0, end - max(start, length - 1)))

    @property
    def can_guess(self) -> bool:
        """Whether more outcomes could be guessed before any forward."""
        return self.inherited is not None or (not self.just_in_time and self._num_guessed < len(self._ranked))

    # --- what a forward brought ---------------------------------------------------------------------------------------

    def take_inherited(self, ranked: Ranked, fan_out: FanOut) -> None:
        """`ranked` holds the candidates of each inherited row; none where nothing was inherited."""
        self.inherited = None
        self._take_ranked(ranked, fan_out)

    def take_trunk(self, chunk: Chunk, ranked: Ranked, fan_out: FanOut) -> None:
        """Trunk tokens were computed; `ranked` holds the candidates of each wanted row."""
        self.num_cached += len(chunk.token_ids)
        self.table.commit(self.prefix, min(self.num_cached, len(self.prefix) - 1))  # whoever begins alike shares it
        self._take_ranked(ranked, fan_out)

    def _take_ranked(self, ranked: Ranked, fan_out: FanOut) -> None:
        self._ranked += ranked.candidates
        if not self.just_in_time:
            self._guess(fan_out)
        elif self.num_cached == self.trunk_length:
            if ranked.own is not None:  # its rules may leave no token
                token, laws = ranked.own
                self.speculation.append(token)
                self._laws += laws
            if ranked.own is None or len(self.speculation) == self.just_in_time or self.room == 0:
                self._finish_just_in_time()

    def _finish_just_in_time(self) -> None:
        """The speculation asked for is whole: hand it out, and guess the outcome of its verification meanwhile."""
        assert self._last_outcome is not None
        self.just_in_time = 0
        piece = SpeculationPiece(self._last_outcome, 0, tuple(self.speculation), tuple(self._laws))
        self._unsent_draft = SpeculationEntries(self.sequence_id, self.epoch, self.round - 1, (piece,), complete=True)

    def rank_of_bonus(self, outcome: VerificationOutcome) -> int | None:
        """Rank, from 1, that the bonus token had among the candidates of its place; None if it was not ranked."""
        return rank_of_bonus(outcome, self._ranked, self.speculation)

    def has_ranked(self, outcome: VerificationOutcome) -> bool:
        """Whether this outcome's place was reached, so that its rank says something."""
        return outcome.num_accepted < len(self._ranked)

    def _guess(self, fan_out: FanOut) -> None:
        """Branches for all places whose candidates are known by now and that have none yet."""
        if self._num_guessed == len(self._ranked):
            return
        if self._fan_out is None:
            self._fan_out = fan_out(len(self.speculation))
        outcomes = likely_outcomes(self._ranked, self.speculation, self._fan_out, start=self._num_guessed)
        self._num_guessed = len(self._ranked)
        if outcomes and self.room > 0:
            start = self._forest.scratch_end(self.trunk_length)
            tree = TokenTree(len(self.prefix), len(self.speculation), outcomes)
            grammar = self.constraint.branches(self.speculation, outcomes)
            read = tuple(readable(self.speculation, self.vocab_size))
            self._forest.add(Branches(tree, read, min(self.lookahead, self.room), start, grammar))

    def entries_to_send(self, now_ns: int, next_step_ns: int) -> SpeculationEntries | None:
        """What is worth a message now: a finished draft, or what the forest has."""
        drafting_ns, queued_ns = self.clock.spent_ns(now_ns)
        if self._unsent_draft is not None:
            entries, self._unsent_draft = self._unsent_draft, None
            self.clock.begin_verification(now_ns)
            return replace(entries, drafting_ns=drafting_ns, queued_ns=queued_ns)
        complete = self._all_guessed and not self._forest.growing
        is_urgent = now_ns + 2 * next_step_ns >= self.clock.deadline_ns  # after the next step it may be too late
        if not self._forest.has_news(finished=complete, urgent=is_urgent):
            return None
        pieces = self._forest.unsent_pieces()
        return SpeculationEntries(
            self.sequence_id, self.epoch, self.round, pieces, complete, drafting_ns=drafting_ns, queued_ns=queued_ns
        )
