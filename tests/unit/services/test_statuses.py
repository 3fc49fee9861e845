"""What a speculator says while the engine is in a long forward is bounded, and none of what counts is lost."""

from __future__ import annotations

from saguaro.types import NotSpeculatingReason, SequenceStatus
from verifier_service.statuses import Statuses

OVERLOADED, DRAINING = NotSpeculatingReason.OVERLOADED, NotSpeculatingReason.DRAINING
UNKNOWN = NotSpeculatingReason.UNKNOWN_SEQUENCE


def test_the_engine_is_told_once_and_finds_the_first_word_on_each_sequences_last_epoch() -> None:
    statuses = Statuses()
    assert not statuses.put(())
    assert statuses.put((SequenceStatus(1, 1, OVERLOADED), SequenceStatus(2, 1, OVERLOADED)))
    assert not statuses.put((SequenceStatus(1, 2, DRAINING), SequenceStatus(2, 1, UNKNOWN)))  # a commit crossed that
    assert set(statuses.take().statuses) == {SequenceStatus(2, 1, OVERLOADED), SequenceStatus(1, 2, DRAINING)}
    assert statuses.take().statuses == ()
    assert statuses.put((SequenceStatus(3, 1, OVERLOADED),))


def test_a_flood_is_bounded() -> None:
    statuses = Statuses(most=100)
    for sequence_id in range(10_000):
        statuses.put((SequenceStatus(sequence_id, 1, OVERLOADED),))
    assert [status.sequence_id for status in statuses.take().statuses] == list(range(9_900, 10_000))
