"""What gathers for the speculator between two forwards, and how long its way there and back takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from saguaro.core.link_time import LinkTime
from saguaro.types import CloseSequence, CommitRound, OpenSequence, SpeculationEntries, VerifierFrame

Send = Callable[[VerifierFrame], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """When entries for `round` were asked for."""

    round: int
    at_ns: int


@dataclass(slots=True)
class _Gathered:
    """For sequences that want the same lookahead."""

    opens: list[OpenSequence] = field(default_factory=list)
    commits: list[CommitRound] = field(default_factory=list)


class Outbox:
    """Opens, commits and closes of one step. The engine thread's, but for `observe`.

    They go out as one frame, or as one a lookahead where traffic classes want different ones: a frame has one for all.
    """

    def __init__(self) -> None:
        self.closes: list[CloseSequence] = []
        self._gathered: defaultdict[int, _Gathered] = defaultdict(_Gathered)
        self._step_id = 0
        self._link = LinkTime()
        self._asked: dict[int, _Asked] = {}

    def open(self, opened: OpenSequence, lookahead: int) -> None:
        """A sequence that wants speculations of `lookahead` tokens."""
        self._gathered[lookahead].opens.append(opened)

    def commit(self, commit: CommitRound, lookahead: int) -> None:
        """A round's outcome, of a sequence that wants speculations of `lookahead` tokens."""
        self._gathered[lookahead].commits.append(commit)

    @property
    def asks(self) -> bool:
        """Whether something gathered that the speculator answers."""
        return any(lookahead > 0 for lookahead in self._gathered)

    def clear(self) -> None:
        """Nothing of this goes out any more."""
        self.closes = []
        self._gathered.clear()

    def forget_link(self) -> None:
        """The next speculator may be elsewhere; nothing of this goes out to it."""
        self.clear()
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
        self, send: Send | None, *, budget: int, cached_scale: float, expected_forward_ns: int, now_ns: int
    ) -> None:
        """Send what has gathered. From `expected_forward_ns` the speculator has what the frames' own way leaves."""
        if send is None:
            self.clear()
            return
        if self.closes and not self._gathered:
            self._gathered[0] = _Gathered()
        for lookahead, gathered in self._gathered.items():
            self._step_id += 1
            for commit in gathered.commits:
                self._asked[commit.sequence_id] = _Asked(commit.round + 1, now_ns)
            closes, self.closes = self.closes, []
            send(
                VerifierFrame(
                    step_id=self._step_id,
                    lookahead=lookahead,
                    budget=budget,
                    soft_deadline_ns=max(expected_forward_ns - self._link.round_trip_ns, 1),
                    opens=tuple(gathered.opens),
                    commits=tuple(gathered.commits),
                    closes=tuple(closes),
                    cached_scale=cached_scale,
                )
            )
        self.clear()
