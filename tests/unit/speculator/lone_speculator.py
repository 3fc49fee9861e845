"""A speculator's scheduler with a real tiny model and no verifier: tests say what verifiers say, and wind the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saguaro.engine.model_runner import Logits, ModelRunner
from saguaro.engine.paged_attention import AttentionPlan
from saguaro.engine.ragged_batch import Chunk, RaggedBatch
from saguaro.types import (
    CloseSequence,
    CommitRound,
    JustInTime,
    NotSpeculatingReason,
    OpenSequence,
    SamplingParams,
    SpeculationEntries,
    SpeculatorFrame,
    TokenIds,
    VerificationOutcome,
    VerifierFrame,
)
from speculator_service.scheduler import DraftScheduler
from speculator_service.stream import Limits
from tests.unit.services.in_memory_trio import runner_of

LIMITS: dict[str, Any] = {
    "max_sequences": 64,
    "max_lookahead": 16,
    "max_budget": 64,
    "prefill_chunk_tokens": 64,
    "lease_seconds": 60.0,
}


@dataclass(frozen=True)
class Forward:
    """What one forward took."""

    num_tokens: int
    mask_bytes: int


@dataclass
class Verifier:
    """One stream, and what came over it."""

    speculator: LoneSpeculator
    lookahead: int = 3
    budget: int = 8
    frames: list[SpeculatorFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stream = self.speculator.scheduler.attach(self.frames.append)

    def say(self, **items: Any) -> None:
        """A frame of opens, commits and closes."""
        items = {"lookahead": self.lookahead, "budget": self.budget, **items}
        self.speculator.scheduler.submit(self.stream, VerifierFrame(1, **items))

    def open(self, sequence_id: int, tokens: Sequence[int], epoch: int = 1, **sampling: Any) -> None:
        self.say(opens=(opening(sequence_id, tokens, epoch, **sampling),))

    def commit(
        self, sequence_id: int, round: int, outcome: VerificationOutcome, following: TokenIds | JustInTime = ()
    ) -> None:
        self.say(commits=(CommitRound(sequence_id, 1, round, outcome, following),))

    def close(self, sequence_id: int, epoch: int = 1) -> None:
        self.say(closes=(CloseSequence(sequence_id, epoch),))

    def entries_of(self, sequence_id: int) -> list[SpeculationEntries]:
        return [item for frame in self.frames for item in frame.entries if item.sequence_id == sequence_id]

    @property
    def refusals(self) -> list[tuple[int, NotSpeculatingReason]]:
        return [(item.sequence_id, item.reason) for frame in self.frames for item in frame.statuses]

    def answer_round(self, sequence_id: int, commits: dict[int, int]) -> None:
        """Where the sequence's round is wholly guessed, let its first guess come true, and verify what follows it."""
        round = commits.get(sequence_id, 0)
        done = [item for item in self.entries_of(sequence_id) if item.round == round]
        if done and done[-1].complete:
            outcome = done[0].pieces[0].outcome
            drafted = [
                token for item in done for piece in item.pieces if piece.outcome == outcome for token in piece.token_ids
            ]
            self.commit(sequence_id, round, outcome, tuple(drafted))
            commits[sequence_id] = round + 1


def opening(sequence_id: int, tokens: Sequence[int], epoch: int = 1, **sampling: Any) -> OpenSequence:
    return OpenSequence(sequence_id, epoch, 0, tuple(tokens), SamplingParams(**sampling), len(tokens))


class LoneSpeculator:
    """`forward`, where given, is what the scheduler's forwards go through: it gets the chunks and the real forward."""

    def __init__(
        self,
        model: Path,
        *,
        num_blocks: int = 256,
        forward: Callable[[Sequence[Chunk], Callable[[Sequence[Chunk]], Logits]], Logits] | None = None,
        **limits: Any,
    ) -> None:
        self.now_ns = 0
        self.forwards: list[Forward] = []
        runner = runner_of(model, num_blocks=num_blocks)
        assert isinstance(runner, ModelRunner)
        self.runner = runner
        self._forward, self._around = runner.forward, forward
        runner.forward = self._observed  # type: ignore[method-assign]
        self.scheduler = DraftScheduler(
            runner, Limits(**{**LIMITS, **limits}), acceptance_prior=0.5, miss_exponent=0.5, clock_ns=self._clock
        )

    def _clock(self) -> int:
        self.now_ns += 1000
        return self.now_ns

    def _observed(self, chunks: Sequence[Chunk]) -> Logits:
        plan = AttentionPlan.build(RaggedBatch.build(chunks), self.runner.kv_pool, self.runner._num_query_heads)
        masks = sum(group.bias.nbytes for group in plan.groups if group.bias is not None)
        self.forwards.append(Forward(sum(len(chunk.token_ids) for chunk in chunks), masks))
        return self._forward(chunks) if self._around is None else self._around(chunks, self._forward)

    def run(self, each_step: Callable[[], None] = lambda: None, max_steps: int = 5000) -> None:
        """Step until there is nothing to draft."""
        for _ in range(max_steps):
            if not self.scheduler.step():
                return
            each_step()
        raise AssertionError(f"still at work after {max_steps} steps")

    @property
    def num_used_blocks(self) -> int:
        return self.scheduler.blocks.num_blocks - self.scheduler.blocks.num_free
