"""Thousands of frames that make no sense, from one verifier, beside another whose speculations stay what they are."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from saguaro.types import (
    AcceptanceMode,
    CloseSequence,
    CommitRound,
    Constraint,
    ConstraintKind,
    JustInTime,
    OpenSequence,
    SamplingParams,
    TokenIds,
    VerificationOutcome,
)
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier

NUM_FRAMES, NUM_ROUNDS = 400, 40
NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-30, 0.5, 1.0, 2.0, 1e30)
IDS = (0, 1, 57, 257, 258, 300, 5000, 2**32 - 1)


def tokens(draw: random.Random, most: int) -> TokenIds:
    if draw.random() < 0.2:
        return tuple(draw.choice(IDS) for _ in range(draw.randrange(most)))
    return tuple(draw.randrange(256) for _ in range(draw.randrange(most)))


def sampling(draw: random.Random) -> SamplingParams:
    numbers = ("top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "cached_scale")
    fields: dict[str, Any] = {name: draw.choice(NUMBERS) for name in numbers if draw.random() < 0.04}
    biases = [(draw.choice(IDS), draw.choice(NUMBERS)) for _ in range(3)] if draw.random() < 0.1 else [(90, -3.0)]
    return SamplingParams(
        **{"temperature": draw.choice((0.0, 0.8, 1e-30, 100.0)), "presence_penalty": draw.choice((0.0, 1.5)), **fields},
        top_k=draw.choice((0, 1, 50, 2**32 - 1)),
        seed=draw.choice((0, 5, 2**64 - 1)),
        min_tokens=draw.choice((0, 3, 2**32 - 1)),
        stop_token_ids=tuple(range(258)) if draw.random() < 0.2 else tokens(draw, 8),
        logit_bias=tuple(biases),
        constraint=draw.choice((None, None, Constraint(ConstraintKind.REGEX, "[a-z]{3}|((("))),
        acceptance=draw.choice((None, *AcceptanceMode)),
    )


def frame(draw: random.Random, epochs: dict[int, int]) -> dict[str, Any]:
    """`epochs`: those last opened, so that some of it hits."""

    def number(most: int) -> int:
        return draw.choice((0, 1, 2**32 - 1)) if draw.random() < 0.05 else draw.randrange(most)

    def opening() -> OpenSequence:
        said, sequence_id = tokens(draw, draw.choice((3, 40, 40, 3000))), number(6)
        epochs[sequence_id] = epochs.get(sequence_id, 0) + draw.choice((-1, 0, 1, 1, 1))
        num_prompt = number(40) if draw.random() < 0.1 else len(said) // 2
        return OpenSequence(sequence_id, max(epochs[sequence_id], 0), number(2), said, sampling(draw), num_prompt)

    def commit() -> CommitRound:
        sequence_id = number(6)
        epoch = epochs.get(sequence_id, 1) if draw.random() < 0.9 else number(9)
        outcome = VerificationOutcome(draw.choice((0, 0, 0, 1, 2**32 - 1)), draw.choice(IDS[:6]))
        return CommitRound(
            *(sequence_id, max(epoch, 0), number(4), outcome),
            draw.choice((JustInTime(number(20)), tokens(draw, 4), tokens(draw, draw.choice((4, 80))))),
        )

    closes = tuple(CloseSequence(number(6), number(9)) for _ in range(draw.choice((0,) * 19 + (1,))))
    return {
        "opens": tuple(opening() for _ in range(draw.choice((0, 0, 0, 1, 2)))),
        "commits": tuple(commit() for _ in range(draw.randrange(6))),
        "closes": closes,
        "soft_deadline_ns": number(10**6),
        "lookahead": number(8),
        "budget": number(20),
        "cached_scale": draw.choice(NUMBERS),
    }


def guesses_of(draft: Path, seed: int | None) -> dict[tuple[int, VerificationOutcome], TokenIds]:
    """What a sequence is told in so many rounds; beside hostile frames where there is a seed."""
    speculator = LoneSpeculator(draft, num_blocks=4000)
    hostile, verifier = Verifier(speculator), Verifier(speculator, lookahead=3, budget=4)
    draw = random.Random(seed)
    epochs: dict[int, int] = {}
    verifier.open(1, range(40), temperature=0.8, seed=9)
    for round in range(NUM_ROUNDS):
        for _ in range(0 if seed is None else NUM_FRAMES // NUM_ROUNDS):
            hostile.say(**frame(draw, epochs))
            speculator.scheduler.step()
        speculator.run()
        assert verifier.entries_of(1)[-1].round == round
        assert verifier.entries_of(1)[-1].complete
        verifier.commit(1, round, VerificationOutcome(0, round))
    assert not verifier.refusals
    assert not speculator.scheduler.num_faults  # all of it was judged before it could do harm
    for sequence_id in (*range(6), 2**32 - 1):
        hostile.close(sequence_id, epoch=2**32 - 1)
    verifier.close(1)
    speculator.run()
    assert speculator.num_used_blocks == 0
    told: dict[tuple[int, VerificationOutcome], TokenIds] = {}
    for entries in verifier.entries_of(1):
        for piece in entries.pieces:
            key = (entries.round, piece.outcome)
            told[key] = (*told.get(key, ())[: piece.offset], *piece.token_ids)
    return told


@pytest.mark.parametrize("seed", range(4))
def test_frames_without_sense_change_nothing_for_another_verifier(draft: Path, seed: int) -> None:
    alone, beside = guesses_of(draft, None), guesses_of(draft, seed)
    both = alone.keys() & beside.keys()
    assert len(both) > NUM_ROUNDS * 2
    assert all(alone[key] == beside[key] for key in both)
