"""One running generation at the verifier: its tokens, its KV, what it verifies next, and how its rounds went."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from saguaro.core.acceptance import draws_drafts
from saguaro.core.logprobs import token_logprobs
from saguaro.core.ngram import NgramIndex
from saguaro.core.penalties import SequenceRules
from saguaro.core.proposal import Proposal
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.grammar import ConstraintState
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import (
    AcceptanceMode,
    EventSink,
    FinishReason,
    GenerationFinished,
    GenerationRequest,
    LookupResult,
    OpenSequence,
    PromptLogprobs,
    Resumption,
    RoundReport,
    SpeculationReport,
    TokenIds,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
    VerificationOutcome,
)


class Sequence:
    """State of one generation. Not thread-safe: the decode loop's thread owns it.

    Invariant between steps: the KV of tokens [0, num_cached) is in the block table; the last token's never is.
    """

    def __init__(
        self,
        sequence_id: int,
        request: GenerationRequest,
        table: BlockTable,
        sink: EventSink,
        *,
        eos_token_ids: frozenset[int],
        length_limit: int,
        constraint: ConstraintState | None = None,
    ) -> None:
        self.sequence_id = sequence_id
        self.request = request
        end_token_ids = eos_token_ids.difference(request.sampling.stop_token_ids)
        if request.ignore_eos:
            end_token_ids = frozenset()
        # As it is in force: every token that ends the sequence is among the stop tokens.
        self.sampling = replace(
            request.sampling, stop_token_ids=(*request.sampling.stop_token_ids, *sorted(end_token_ids))
        )
        self.draws_drafts = draws_drafts(self.sampling)
        # As a speculator has to draft for it; at temperature 0 the modes are one.
        self.draft_mode = AcceptanceMode.REJECTION if self.draws_drafts else AcceptanceMode.COUPLED
        resumed = request.resumption or Resumption((), 0)
        self.tokens: list[int] = [*request.prompt, *resumed.token_ids]
        self.num_prompt = len(request.prompt)
        self.rules = SequenceRules.of(self.sampling, self.tokens, self.num_prompt)
        self.constraint = constraint  # where the output stands in its grammar
        self.table = table
        self.sink = sink
        self.num_cached = 0
        self.num_cached_prompt = 0
        self.round = self._first_round = resumed.num_rounds
        # What the next forward verifies after the last token, and where that came from.
        self.speculation: TokenIds = ()
        self.drafted_as = TokenProvenance.PLAIN
        self.drafting_ns = 0
        self._drawn: Proposal | None = None
        # While it waits for a just-in-time speculation: until when.
        self.wait_until_ns: int | None = None
        self.submitted_ns = self.ready_since_ns = 0
        self.ngrams = NgramIndex()
        self._end_token_ids = frozenset(self.sampling.stop_token_ids)
        self._prompt_logprobs: list[TokenLogprobs] = []
        most = length_limit - self.num_prompt
        self._max_tokens = most if request.max_tokens is None else min(request.max_tokens, most)
        self._rounds: list[RoundReport] = []
        self._hits = self._misses = self._late = 0
        self._num_rounds = self._num_draft = self._num_accepted = 0
        self.finish_reason = self._end_of(resumed.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def has_run(self) -> bool:
        """Whether a forward here has brought a token."""
        return self.round > self._first_round

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the last token has no KV yet: a new prompt, or a sequence that was preempted."""
        return self.num_cached < len(self.tokens) - 1 or self.round == 0

    @property
    def scores_prompt(self) -> bool:
        """Whether the prompt's log-probabilities are still wanted, so that its rows must be computed."""
        return self.request.prompt_logprobs and self.round == 0

    @property
    def max_speculation(self) -> int:
        """Draft tokens that could still be emitted beside a bonus token."""
        return self._max_tokens - self.num_generated - 1

    # --- the forward --------------------------------------------------------------------------------------------------

    def adopt_prefix(self) -> None:
        """Take over cached blocks that hold the beginning of these tokens; not of a prompt whose rows are wanted."""
        if self.scores_prompt:
            return
        self.num_cached = self.table.match_prefix(self.tokens)
        if self.round == self._first_round:
            self.num_cached_prompt = min(self.num_cached, self.num_prompt)

    def next_chunk(self, max_tokens: int) -> Chunk:
        """The tokens of the next forward: part of the prompt, or the last token and the speculation.

        Logits are wanted of the last token and the speculation, and of a prompt that is scored.
        Raises OutOfBlocks and changes nothing if their KV has no room.
        """
        end = len(self.tokens)
        if end - self.num_cached > max_tokens:
            end = self.num_cached + max_tokens
            self.table.reserve(end)
            num_logits = end - self.num_cached if self.scores_prompt else 0
            return Chunk.causal(self.tokens[self.num_cached : end], self.num_cached, self.table, num_logits)
        self.table.reserve(end + len(self.speculation))
        token_ids = [*self.tokens[self.num_cached :], *self.speculation]
        num_logits = len(token_ids) if self.scores_prompt else len(self.speculation) + 1
        return Chunk.causal(token_ids, self.num_cached, self.table, num_logits)

    def took_prefill(self, chunk: Chunk) -> None:
        """An inner chunk of the prompt was computed."""
        self.num_cached += len(chunk.token_ids)
        self.table.commit(self.tokens, self.num_cached)

    def score_prompt(self, logits: Tensor) -> None:
        """Rows [rows, vocab] from `num_cached` on were computed: each says how likely its next prompt token was."""
        following = self.request.prompt[self.num_cached + 1 : self.num_cached + 1 + len(logits)]
        self._prompt_logprobs += token_logprobs(logits, following, self.request.top_logprobs)

    def take_prompt_logprobs(self) -> PromptLogprobs:
        """All of the prompt's log-probabilities, once it was computed."""
        logprobs, self._prompt_logprobs = tuple(self._prompt_logprobs), []
        return PromptLogprobs(logprobs)

    def verify_next(
        self,
        speculation: TokenIds,
        drafted_as: TokenProvenance,
        drafting_ns: int = 0,
        drawn: Proposal | None = None,
    ) -> None:
        """Set the speculation of the next forward, cut to what could still be emitted.

        `drawn`: the same tokens with the laws that they were drawn from, where they were.
        """
        self.speculation = speculation[: max(self.max_speculation, 0)]
        self.drafted_as = drafted_as
        self.drafting_ns = drafting_ns
        self._drawn = None if drawn is None else drawn.first(len(self.speculation))

    def verify_fewer(self, num_tokens: int) -> None:
        """Leave at most so many tokens of the speculation of the next forward: there is no room for the others."""
        self.verify_next(self.speculation[:num_tokens], self.drafted_as, self.drafting_ns, self._drawn)

    @property
    def proposal(self) -> Proposal:
        """The speculation with the law of each token, as rejection mode verifies it."""
        if self._drawn is not None:
            return self._drawn
        # What the draft model drew would be refused more often by this law, and nobody would notice.
        assert not self.speculation or self.drafted_as is TokenProvenance.NGRAM_DRAFT
        return Proposal.not_drawn(self.speculation)

    # --- the outcome --------------------------------------------------------------------------------------------------

    def commit(self, outcome: VerificationOutcome) -> TokenRun:
        """Append the accepted tokens and the bonus token, ended at the earliest end; KV of the rest is rolled back.

        Raises SequenceFault and appends nothing where the sequence's grammar cannot be followed further.
        """
        run = [*self.speculation[: outcome.num_accepted], outcome.bonus_token]
        provenance = [self.drafted_as] * outcome.num_accepted
        provenance.append(TokenProvenance.BONUS if self.speculation else TokenProvenance.PLAIN)
        length = self._end_of_run(run)
        if self.constraint is not None:
            self.constraint.advance(run[:length])
        self.tokens += run[:length]
        if self.rules is not None:
            self.rules.extend(run[:length])
        self.num_cached = len(self.tokens) - 1
        self.table.truncate(self.num_cached)
        self.table.commit(self.tokens, self.num_cached)
        return TokenRun(tuple(run[:length]), tuple(provenance[:length]))

    def _end_of(self, output: TokenIds) -> FinishReason | None:
        """Whether a generation had ended with what it emitted elsewhere, before anyone heard of it."""
        if output and output[-1] in self._end_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(output) >= self._max_tokens else None

    def _end_of_run(self, run: list[int]) -> int:
        """Length of the run up to the earliest end: an end-of-sequence or stop token, then max_tokens."""
        for index, token in enumerate(run[: self._max_tokens - self.num_generated]):
            if token in self._end_token_ids:
                self.finish_reason = FinishReason.STOP
                return index + 1
        if self.num_generated + len(run) >= self._max_tokens:
            self.finish_reason = FinishReason.LENGTH
            return self._max_tokens - self.num_generated
        return len(run)

    def end_round(self, report: RoundReport) -> None:
        """Count the round that ended and begin the next."""
        if self.round > 0:
            self._num_rounds += 1
            self._num_draft += report.num_draft_tokens
            self._num_accepted += report.num_accepted_tokens
        self._hits += report.lookup is LookupResult.HIT
        self._misses += report.lookup is LookupResult.MISS
        self._late += report.lookup is LookupResult.LATE
        if self.request.include_rounds:
            self._rounds.append(report)
        self.round += 1

    def opened(self, epoch: int, round: int) -> OpenSequence:
        """What a speculator must know of it; `round` is verified next."""
        tokens = tuple(self.tokens)
        return OpenSequence(self.sequence_id, epoch, round, tokens, self.sampling, self.num_prompt)

    def preempt(self) -> None:
        """Give all KV back; the tokens stay and are computed again later."""
        self.table.free()
        self.num_cached = 0
        self._prompt_logprobs.clear()
        self.verify_next((), TokenProvenance.PLAIN)
        self.wait_until_ns = None

    def finished(self, *, speculating: bool, reason: str) -> GenerationFinished:
        """The last event of this generation."""
        assert self.finish_reason is not None
        return GenerationFinished(
            reason=self.finish_reason,
            num_prompt_tokens=self.num_prompt,
            num_generated_tokens=self.num_generated,
            num_cached_prompt_tokens=self.num_cached_prompt,
            speculation=SpeculationReport(
                speculating=speculating,
                reason=reason,
                num_rounds=self._num_rounds,
                num_draft_tokens=self._num_draft,
                num_accepted_tokens=self._num_accepted,
                cache_hits=self._hits,
                cache_misses=self._misses,
                cache_late=self._late,
                rounds=tuple(self._rounds),
            ),
        )
