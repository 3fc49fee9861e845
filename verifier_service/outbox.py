"""What gathers for the speculator between two forwards, and how long its way there and back takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saguaro.core.link_time import LinkTime
from saguaro.types import CloseSequence, CommitRound, OpenSequence, SpeculationEntries, VerifierFrame

Send = Callable[[VerifierFrame], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """When entries for `round` were asked for."""

    round: int
    at_ns: int


class Outbox:
    """Opens, commits and closes of one step, sent as one frame. The engine thread's, but for `observe`."""

    def __init__(self) -> None:
        self.opens: list[OpenSequence] = []
        self.commits: list[CommitRound] = []
        self.closes: list[CloseSequence] = []
        self._step_id = 0
        self._link = LinkTime()
        self._asked: dict[int, _Asked] = {}

    def clear(self) -> None:
        """Nothing of this goes out any more."""
        self.opens, self.commits, self.closes = [], [], []

    def forget_link(self) -> None:
        """The next speculator may be elsewhere."""
        self._link = LinkTime()
        self._asked.clear()

    def forget(self, sequence_id: int) -> None:
        """Nothing comes any more for the sequence."""
        self._asked.pop(sequence_id, None)

    def observe(self, entries: SpeculationEntries, now_ns: int) -> None:
        """Entries came in; what their round trip did not spend at the speculator, it spent on the way. Any thread."""
        asked = self._asked.get(entries.sequence_id)
        if asked is not None and asked.round == entries.round:
            self._link.observe(now_ns - asked.at_ns - entries.queued_ns - entries.drafting_ns)

    def flush(
        self,
        send: Send | None,
        *,
        lookahead: int,
        budget: int,
        cached_scale: float,
        expected_forward_ns: int,
        now_ns: int,
    ) -> None:
        """Send what has gathered. From `expected_forward_ns` the speculator has what the frames' own way leaves."""
        if send is not None and (self.opens or self.commits or self.closes):
            self._step_id += 1
            for commit in self.commits:
                self._asked[commit.sequence_id] = _Asked(commit.round + 1, now_ns)
            send(
                VerifierFrame(
                    step_id=self._step_id,
                    lookahead=lookahead,
                    budget=budget,
                    soft_deadline_ns=max(expected_forward_ns - self._link.round_trip_ns, 1),
                    opens=tuple(self.opens),
                    commits=tuple(self.commits),
                    closes=tuple(self.closes),
                    cached_scale=cached_scale,
                )
            )
        self.clear()
