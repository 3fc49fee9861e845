"""What a speculator says while the engine is in a long forward is bounded, and none of what counts is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from saguaro.types import (
    NotSpeculatingReason,
    SequenceStatus,
    SpeculationEntries,
    SpeculatorFrame,
)
from verifier_service.statuses import Statuses

OVERLOADED, DRAINING = NotSpeculatingReason.OVERLOADED, NotSpeculatingReason.DRAINING
UNKNOWN = NotSpeculatingReason.UNKNOWN_SEQUENCE


class Engine:
    """What waits for the engine thread, what it was handed, and how often it was woken for nothing but entries."""

    def __init__(self, **bounds: Any) -> None:
        self.inbox: deque[Callable[[], None]] = deque()
        self.handed: list[tuple[SpeculatorFrame, int]] = []
        self.num_wakes = 0
        self.statuses = Statuses(lambda *told: self.handed.append(told), self.inbox.append, self._wake, **bounds)

    def _wake(self) -> None:
        self.num_wakes += 1

    def step(self) -> list[SequenceStatus]:
        while self.inbox:
            self.inbox.popleft()()
        handed, self.handed = self.handed, []
        return [status for frame, _ in handed for status in frame.statuses]


def said(*statuses: SequenceStatus) -> SpeculatorFrame:
    return SpeculatorFrame(statuses=statuses)


def test_the_engine_finds_the_first_word_on_each_sequences_last_epoch() -> None:
    engine = Engine()
    engine.statuses.put(said(SequenceStatus(1, 1, OVERLOADED), SequenceStatus(2, 1, OVERLOADED)), 10)
    engine.statuses.put(said(SequenceStatus(1, 2, DRAINING), SequenceStatus(2, 1, UNKNOWN)), 20)  # a commit crossed it
    assert len(engine.inbox) == 1
    assert set(engine.step()) == {SequenceStatus(1, 2, DRAINING), SequenceStatus(2, 1, OVERLOADED)}
    engine.statuses.put(said(SequenceStatus(2, 1, UNKNOWN)), 30)
    assert engine.step() == [SequenceStatus(2, 1, UNKNOWN)]


def test_entries_wake_the_engine_and_do_not_wait_for_it() -> None:
    engine = Engine()
    for _ in range(100):
        engine.statuses.put(SpeculatorFrame((SpeculationEntries(1, 1, 1, (), True),)), 10)
    assert engine.num_wakes == 100
    assert not engine.inbox


def test_a_flood_is_bounded() -> None:
    engine = Engine(most=100)
    for sequence_id in range(10_000):
        engine.statuses.put(said(SequenceStatus(sequence_id, 1, OVERLOADED)), 10)
    assert len(engine.inbox) == 1
    assert [status.sequence_id for status in engine.step()] == list(range(9_900, 10_000))
