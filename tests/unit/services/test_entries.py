"""Every speculation that the speculator pushes is what the draft alone says after that outcome.

That covers the tree mask, positions, forks, the draft's KV after hits, misses and just-in-time drafts, block
boundaries, and the sequence and round that an entry belongs to.
"""

from __future__ import annotations

import pytest
import torch

from saguaro.core.penalties import SequenceRules, apply_rules, ruled_rows
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import race
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import (
    CommitRound,
    GenerationRequest,
    JustInTime,
    SamplingParams,
    SpeculationEntries,
    SpeculatorFrame,
    VerifierFrame,
)
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio, Pace, runner_of

PROMPT = tuple(range(80, 97))


class Replay:
    """What each round of each sequence stood on, read off the frames that crossed the link."""

    def __init__(self) -> None:
        self.prefixes: dict[tuple[int, int, int], list[int]] = {}  # (sequence, epoch, round) -> committed tokens
        self.speculations: dict[tuple[int, int, int], list[int]] = {}

    def verifier_said(self, frame: VerifierFrame) -> None:
        for opened in frame.opens:
            self.prefixes[opened.sequence_id, opened.epoch, opened.round] = list(opened.token_ids)
            self.speculations[opened.sequence_id, opened.epoch, opened.round] = []
        for commit in frame.commits:
            self._commit(commit)

    def _commit(self, commit: CommitRound) -> None:
        here = (commit.sequence_id, commit.epoch, commit.round)
        following = (commit.sequence_id, commit.epoch, commit.round + 1)
        accepted = self.speculations[here][: commit.outcome.num_accepted]
        self.prefixes[following] = [*self.prefixes[here], *accepted, commit.outcome.bonus_token]
        self.speculations[following] = [] if isinstance(commit.speculation, JustInTime) else list(commit.speculation)

    def prefix_of_outcome(self, entries: SpeculationEntries, index: int) -> list[int]:
        here = (entries.sequence_id, entries.epoch, entries.round)
        outcome = entries.pieces[index].outcome
        return [*self.prefixes[here], *self.speculations[here][: outcome.num_accepted], outcome.bonus_token]

    def drafted_just_in_time(self, entries: SpeculationEntries) -> None:
        """A whole speculation for the outcome just committed is verified next, as the contract says."""
        following = (entries.sequence_id, entries.epoch, entries.round + 1)
        if following in self.prefixes:
            self.speculations[following] = list(entries.pieces[0].token_ids)


def draft_alone(
    draft: TinyModels, prefix: list[int], count: int, sampling: SamplingParams, num_prompt: int
) -> list[int]:
    """The draft's next tokens after `prefix`, by fresh prefills on a pool of their own."""
    runner = runner_of(draft.draft, num_blocks=64, block_size=16)
    tokens = list(prefix)
    for _ in range(count):
        with BlockTable(runner.block_manager) as table:
            table.reserve(len(tokens))
            logits = runner.forward([Chunk.causal(tokens, 0, table, num_logits=1)]).rows
        rules = SequenceRules.of(sampling, tokens, num_prompt)
        logits = apply_rules(logits, ruled_rows([(rules, 1, lambda: [()])]))
        tokens.append(int(race(logits, RowSampling.build([sampling], [len(tokens)], torch.device("cpu")))[0]))
    return tokens[len(prefix) :]


@pytest.mark.parametrize("pace", [Pace.FAST, Pace.STEPWISE, Pace.LATE])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.8, seed=5, top_k=40),
        SamplingParams(
            temperature=0.8,
            seed=5,
            min_p=0.02,
            repetition_penalty=1.3,
            presence_penalty=0.4,
            frequency_penalty=0.3,
            logit_bias=((90, 2.0), (91, -3.0)),
            min_tokens=8,
            stop_token_ids=tuple(range(100, 140)),
        ),
    ],
    ids=["greedy", "sampled", "penalised"],
)
def test_every_pushed_speculation_is_the_draft_alone_after_that_outcome(
    tiny: TinyModels, pace: Pace, sampling: SamplingParams
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, lookahead=3, budget=6, pace=pace)
    answers = [
        trio.submit(GenerationRequest(f"r{i}", PROMPT[i:], sampling, max_tokens=16))[1] for i in range(2)
    ]  # two sequences, so that an entry could be the other's
    trio.run(*answers)

    replay = Replay()
    drafted: dict[tuple[int, ...], list[int]] = {}
    for frame in trio.frames:
        if isinstance(frame, VerifierFrame):
            replay.verifier_said(frame)
            continue
        assert isinstance(frame, SpeculatorFrame)
        for entries in frame.entries:
            for index, piece in enumerate(entries.pieces):
                prefix = tuple(replay.prefix_of_outcome(entries, index))
                so_far = drafted.setdefault((entries.sequence_id, entries.epoch, entries.round, *prefix), [])
                del so_far[piece.offset :]
                so_far += piece.token_ids
            if (entries.sequence_id, entries.epoch, entries.round + 1) in replay.prefixes:
                replay.drafted_just_in_time(entries)
    assert len(drafted) > 20
    for key, tokens in drafted.items():
        num_prompt = len(PROMPT) + 1 - key[0]
        assert tokens == draft_alone(tiny, list(key[3:]), len(tokens), sampling, num_prompt)
