"""What a verifier has open is what is open here, in whatever order its frames say so; what it forgot is reaped."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from saguaro.types import (
    CloseSequence,
    CommitRound,
    GenerationRequest,
    NotSpeculatingReason,
    OpenSequence,
    SamplingParams,
    VerificationOutcome,
    VerifierFrame,
)
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier, opening

SECOND = 1_000_000_000


@dataclass
class Model:
    """A verifier by its own word: epoch and round of each sequence that it has open."""

    draw: random.Random
    open: dict[int, list[int]] = field(default_factory=dict)
    history: list[OpenSequence | CloseSequence] = field(default_factory=list)
    last_epoch: int = 0

    def step(self) -> list[OpenSequence | CloseSequence | CommitRound]:
        """What one step says, in the order in which it happened."""
        said: list[OpenSequence | CloseSequence | CommitRound] = []
        for sequence_id in [item for item in self.open if self.draw.random() < 0.5]:
            epoch, round = self.open[sequence_id]
            said.append(CommitRound(sequence_id, epoch, round, VerificationOutcome(0, 5), ()))
            self.open[sequence_id][1] += 1
        for _ in range(self.draw.randrange(6)):
            sequence_id = self.draw.randrange(8)
            if self.draw.random() < 0.5 and sequence_id in self.open:
                said.append(CloseSequence(sequence_id, self.open.pop(sequence_id)[0]))
            else:
                self.last_epoch += 1
                self.open[sequence_id] = [self.last_epoch, 0]
                said.append(opening(sequence_id, range(sequence_id, sequence_id + 12), self.last_epoch))
        repeated = self.draw.sample(self.history, min(len(self.history), self.draw.randrange(3)))
        self.history += [item for item in said if not isinstance(item, CommitRound)]
        return [*said, *repeated]


def frames_of(said: list[Any], draw: random.Random) -> list[dict[str, tuple[Any, ...]]]:
    """The same in one frame or several, in any order."""
    draw.shuffle(said)
    parts: list[list[Any]] = [[] for _ in range(draw.randrange(1, 4))]
    for item in said:
        draw.choice(parts).append(item)
    kinds = {"opens": OpenSequence, "commits": CommitRound, "closes": CloseSequence}
    return [{name: tuple(i for i in part if isinstance(i, kind)) for name, kind in kinds.items()} for part in parts]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_opens_and_closes_leaves_open_what_the_verifier_has_open(draft: Path, seed: int) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator, budget=2)
    draw = random.Random(seed)
    model = Model(draw)
    for _ in range(60):
        for frame in frames_of(model.step(), draw):
            verifier.say(**frame)
        for _ in range(draw.randrange(1, 4)):
            speculator.scheduler.step()
        open_here = {session.sequence_id: session.epoch for session in verifier.stream.sessions.values()}
        assert open_here == {sequence_id: epoch for sequence_id, (epoch, _) in model.open.items()}
    assert not verifier.refusals
    verifier.say(closes=tuple(CloseSequence(sequence_id, epoch) for sequence_id, (epoch, _) in model.open.items()))
    speculator.run()
    assert speculator.num_used_blocks == 0


def test_a_sequence_that_is_opened_and_closed_in_one_frame_holds_nothing(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.say(opens=(opening(1, range(40)),), closes=(CloseSequence(1, 1),))
    speculator.run()
    assert speculator.scheduler.num_sequences == speculator.num_used_blocks == 0
    assert not verifier.refusals


def test_two_verifiers_may_use_the_same_sequence_ids(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    one, other = Verifier(speculator), Verifier(speculator)
    one.open(1, range(40))
    other.open(1, range(60, 90), epoch=7)
    speculator.run()
    one.close(1, epoch=9)
    speculator.run()
    assert not one.stream.sessions
    assert other.stream.sessions[1].epoch == 7
    assert other.entries_of(1)[-1].complete


def test_a_sequence_that_its_verifier_forgot_is_reaped_and_the_verifier_told(draft: Path) -> None:
    speculator = LoneSpeculator(draft, lease_seconds=60.0)
    verifier = Verifier(speculator)
    verifier.open(1, range(40))
    verifier.open(2, range(60, 90))
    speculator.run()
    for round in range(70):
        speculator.now_ns += SECOND
        verifier.commit(2, round, VerificationOutcome(0, 5))
        speculator.run()
    assert verifier.refusals == [(1, NotSpeculatingReason.UNKNOWN_SEQUENCE)]
    assert set(verifier.stream.sessions) == {2}


def test_a_target_in_a_long_forward_loses_nothing(draft: Path) -> None:
    speculator = LoneSpeculator(draft, lease_seconds=60.0)
    verifier = Verifier(speculator)
    verifier.open(1, range(40))
    speculator.run()
    for round in range(3):
        speculator.now_ns += 300 * SECOND
        speculator.run()
        verifier.commit(1, round, VerificationOutcome(0, 5))
        speculator.run()
    assert not verifier.refusals
    assert verifier.entries_of(1)[-1].round == 3


def test_a_verifier_that_is_silent_for_ever_does_not_hold_blocks_for_ever(draft: Path) -> None:
    speculator = LoneSpeculator(draft, lease_seconds=60.0)
    verifier = Verifier(speculator)
    verifier.open(1, range(40))
    speculator.run()
    speculator.now_ns += 601 * SECOND
    speculator.run()
    assert speculator.num_used_blocks == 0
    assert verifier.refusals == [(1, NotSpeculatingReason.UNKNOWN_SEQUENCE)]


def test_reaping_in_the_midst_of_answers_changes_no_token(tiny: TinyModels) -> None:
    request = GenerationRequest("r", tuple(range(40, 63)), SamplingParams(temperature=0.8, seed=5), max_tokens=60)
    plain = InMemoryTrio(tiny.target, None).generate(request).tokens
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, answer = trio.submit(request)
    for step in range(1, 1000):
        trio.step()
        if answer.is_over:
            break
        if step % 7 == 0:
            trio.stream.reap(now_ns=1 << 62)
    assert answer.tokens == plain
    assert len([frame for frame in trio.frames if isinstance(frame, VerifierFrame) and frame.opens]) >= 2
    assert answer.finished.speculation.num_accepted_tokens > 0
    trio.assert_all_blocks_free()
