"""An in-memory trio whose frames come late, whose link breaks, and whose planner is the real one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from saguaro.types import NotSpeculatingReason, SequenceStatus, SpeculatorFrame, VerifierFrame
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace


class LateTrio(InMemoryTrio):
    """Frames of either side wait for 0 to `most_late` steps of the verifier, in order."""

    def __init__(self, target: Path, draft: Path, *, seed: int, most_late: int, **options: Any) -> None:
        self.chance = random.Random(seed)
        self.refusals: list[SequenceStatus] = []
        self._most_late = most_late
        self._late: list[tuple[int, Any]] = []
        self._num_steps = 0
        super().__init__(target, draft, pace=Pace.STEPWISE, **options)

    def _hold(self, deliver: Any) -> None:
        due = self._num_steps + self.chance.randint(0, self._most_late)
        self._late.append((max([due, *(at for at, _ in self._late)]), deliver))

    def _to_speculator(self, stream: object, frame: VerifierFrame) -> None:
        self._hold(lambda: self.scheduler.submit(stream, frame) if stream is self.stream else None)  # type: ignore[arg-type]

    def _to_verifier(self, frame: SpeculatorFrame) -> None:
        self.refusals += frame.statuses
        stream = self.stream
        self._hold(lambda: super(LateTrio, self)._to_verifier(frame) if stream is self.stream else None)

    def step(self) -> None:
        self._num_steps += 1
        while self._late and self._late[0][0] <= self._num_steps:
            self._late.pop(0)[1]()
        super().step()

    def reconnect(self) -> None:
        """The stream is lost and there is a new one at once."""
        self._late.clear()
        self.detach()
        self.attach()

    def serve(self, *answers: Answer, reconnects: float = 0.0, overloads: float = 0.0) -> None:
        """Step until all are over; now and then the link is lost, or the speculator has no room for a sequence."""
        for _ in range(20_000):
            if all(answer.is_over for answer in answers):
                return
            if self.chance.random() < reconnects:
                self.reconnect()
            if self.chance.random() < overloads and self.stream.sessions:
                session = self.chance.choice(list(self.stream.sessions.values()))
                self.stream.refuse(session.sequence_id, session.epoch, NotSpeculatingReason.OVERLOADED)
            self.step()
        raise AssertionError("no end")

    @property
    def quarantined(self) -> list[SequenceStatus]:
        """Sequences that were given up for good."""
        return [status for status in self.refusals if status.reason is NotSpeculatingReason.MALFORMED]
