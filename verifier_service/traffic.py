"""What passes between verifier and speculator for each sequence: bytes, and when the drafting of a round began.

Counted only for sequences that report their rounds, on the event loop while the forward runs; a step reads what is
there. The event loop alone writes the counters and the engine thread alone reads them, so neither waits for the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from saguaro.v1 import speculator_pb2 as pb


@dataclass(slots=True)
class _Passed:
    sent_bytes: int = 0
    received_bytes: int = 0
    # By the round whose outcome is guessed: when the speculator was told to, and when it began.
    told_ns: dict[int, int] = field(default_factory=dict)
    drafting_started_ns: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundTraffic:
    """Bytes since the round before, and when, by the verifier's clock, the drafting of what it verified began."""

    sent_bytes: int = 0
    received_bytes: int = 0
    drafting_started_ns: int | None = None


class Traffic:
    """Counters of the sequences that asked for them.

    The speculator has a clock of its own and reports lengths: from the arrival of a commit to taking the round up
    (`queued_ns`), and from there to sending the entries (`drafting_ns`). Counted from our sending of the commit the
    drafting began `queued_ns` later, plus the way there; counted from our receiving of the entries, `drafting_ns`
    earlier, less the way back. The mean of the two is right as far as both ways take equally long.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._passed: dict[int, _Passed] = {}
        self._read: dict[int, tuple[int, int]] = {}

    # --- the engine thread --------------------------------------------------------------------------------------------

    def begin(self, sequence_id: int) -> None:
        """Count for this sequence from now on."""
        self._read[sequence_id] = (0, 0)
        self._passed[sequence_id] = _Passed()

    def end(self, sequence_id: int) -> None:
        """The sequence ended. Unknown ones are fine."""
        self._passed.pop(sequence_id, None)
        self._read.pop(sequence_id, None)

    def take(self, sequence_id: int, round: int) -> RoundTraffic:
        """What passed since the last call; the drafting is that of the speculation which `round` verified."""
        passed = self._passed.get(sequence_id)
        if passed is None:
            return RoundTraffic()
        sent, received = passed.sent_bytes, passed.received_bytes
        before = self._read[sequence_id]
        self._read[sequence_id] = (sent, received)
        started_ns = passed.drafting_started_ns.get(round - 1)
        return RoundTraffic(sent - before[0], received - before[1], started_ns)

    # --- the event loop -----------------------------------------------------------------------------------------------

    def sent(self, frame: pb.SpeculateRequest) -> None:
        """A frame goes out now."""
        if not self._passed:
            return
        now_ns = self._clock_ns()
        for sequence_id, num_bytes in _shares(frame.ByteSize(), (frame.opens, frame.commits, frame.closes)).items():
            passed = self._passed.get(sequence_id)
            if passed is not None:
                passed.sent_bytes += num_bytes
        for opened in frame.opens:
            passed = self._passed.get(opened.sequence_id)
            if passed is not None:
                passed.told_ns[opened.round] = now_ns
        for commit in frame.commits:
            passed = self._passed.get(commit.sequence_id)
            if passed is not None:
                passed.told_ns[commit.round + 1] = now_ns
                if commit.WhichOneof("next") == "just_in_time":  # its draft answers to this very round
                    passed.told_ns[commit.round] = now_ns

    def received(self, frame: pb.SpeculateResponse) -> None:
        """A frame came in now."""
        if not self._passed:
            return
        now_ns = self._clock_ns()
        for sequence_id, num_bytes in _shares(frame.ByteSize(), (frame.entries, frame.statuses)).items():
            passed = self._passed.get(sequence_id)
            if passed is not None:
                passed.received_bytes += num_bytes
        for entries in frame.entries:
            passed = self._passed.get(entries.sequence_id)
            told_ns = None if passed is None else passed.told_ns.get(entries.round)
            if passed is not None and told_ns is not None:
                by_commit, by_entries = told_ns + entries.queued_ns, now_ns - entries.drafting_ns
                passed.drafting_started_ns[entries.round] = (by_commit + by_entries) // 2


class _OfSequence(Protocol):
    sequence_id: int

    def ByteSize(self) -> int: ...


def _shares(frame_bytes: int, fields: Iterable[Iterable[_OfSequence]]) -> Mapping[int, int]:
    """Bytes of a frame by sequence: its own messages, and an even share of what is nobody's."""
    own: dict[int, int] = {}
    for messages in fields:
        for message in messages:
            own[message.sequence_id] = own.get(message.sequence_id, 0) + message.ByteSize()
    rest = frame_bytes - sum(own.values())
    return {sequence_id: num_bytes + rest // len(own) for sequence_id, num_bytes in own.items()}
