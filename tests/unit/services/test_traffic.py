"""Bytes and drafting times of a sequence, from the frames of both directions."""

from __future__ import annotations

from saguaro.types import (
    CommitRound,
    JustInTime,
    OpenSequence,
    SamplingParams,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    TokenIds,
    VerificationOutcome,
    VerifierFrame,
)
from saguaro.wire.speculator import speculator_frame_to_proto, verifier_frame_to_proto
from verifier_service.traffic import RoundTraffic, Traffic

OUTCOME = VerificationOutcome(0, 7)


class Wire:
    """Frames between a verifier and a speculator whose clocks share nothing, each way of a set length."""

    def __init__(self, *, there_ns: int = 0, back_ns: int = 0) -> None:
        self.now_ns = 1_000_000
        self.traffic = Traffic(lambda: self.now_ns)
        self._there_ns, self._back_ns = there_ns, back_ns

    def commit(self, *sequences: int, round: int, speculation: TokenIds | JustInTime = (1, 2)) -> int:
        """Bytes of the frame."""
        commits = tuple(CommitRound(item, 1, round, OUTCOME, speculation) for item in sequences)
        message = verifier_frame_to_proto(VerifierFrame(5, 4, 8, 9, commits=commits))
        self.traffic.sent(message)
        return message.ByteSize()

    def draft(self, *sequences: int, round: int, queued_ns: int = 0, drafting_ns: int = 0) -> int:
        """Entries that answer to a commit sent just now; returns the bytes of the frame."""
        self.now_ns += self._there_ns + queued_ns + drafting_ns + self._back_ns
        pieces = (SpeculationPiece(OUTCOME, 0, (3, 4, 5)),)
        entries = tuple(SpeculationEntries(item, 1, round, pieces, True, drafting_ns, queued_ns) for item in sequences)
        message = speculator_frame_to_proto(SpeculatorFrame(entries, (), 100))
        self.traffic.received(message)
        return message.ByteSize()


def test_the_bytes_of_a_lone_sequence_are_those_of_its_frames() -> None:
    wire = Wire()
    wire.traffic.begin(1)
    sent, received = wire.commit(1, round=3), wire.draft(1, round=4)
    taken = wire.traffic.take(1, 4)
    assert (taken.sent_bytes, taken.received_bytes) == (sent, received)
    assert wire.traffic.take(1, 5) == RoundTraffic(0, 0, wire.now_ns)


def test_sequences_share_out_all_bytes_of_a_frame() -> None:
    wire = Wire()
    for sequence in (1, 2):
        wire.traffic.begin(sequence)
    sent, received = wire.commit(1, 2, round=3), wire.draft(1, 2, round=4)
    both = [wire.traffic.take(sequence, 4) for sequence in (1, 2)]
    # Whole bytes: the odd one of what is nobody's is lost.
    assert sent - 1 <= sum(item.sent_bytes for item in both) <= sent
    assert received - 1 <= sum(item.received_bytes for item in both) <= received


def test_drafting_begins_where_both_clocks_lengths_put_it_whatever_the_network_takes() -> None:
    wire = Wire(there_ns=5_000, back_ns=5_000)
    wire.traffic.begin(1)
    told_ns = wire.now_ns
    wire.commit(1, round=3)
    wire.draft(1, round=4, queued_ns=300, drafting_ns=70_000)
    assert wire.traffic.take(1, 5).drafting_started_ns == told_ns + 5_000 + 300


def test_a_draft_just_in_time_counts_from_the_commit_that_asked_for_it() -> None:
    wire = Wire()
    wire.traffic.begin(1)
    wire.commit(1, round=2)
    wire.now_ns += 1_000_000
    asked_ns = wire.now_ns
    wire.commit(1, round=3, speculation=JustInTime(4))
    wire.draft(1, round=3, queued_ns=10, drafting_ns=500)
    assert wire.traffic.take(1, 4).drafting_started_ns == asked_ns + 10


def test_the_rest_of_a_tree_that_comes_after_the_next_commit_moves_nothing() -> None:
    wire = Wire()
    wire.traffic.begin(1)
    told_ns = wire.now_ns
    wire.commit(1, round=3)
    wire.draft(1, round=4, drafting_ns=60_000)
    wire.commit(1, round=4)
    wire.now_ns = told_ns  # `draft` lets its own time pass
    wire.draft(1, round=4, drafting_ns=90_000)
    assert wire.traffic.take(1, 5).drafting_started_ns == told_ns


def test_a_prompt_and_its_first_entries_count() -> None:
    wire = Wire()
    wire.traffic.begin(1)
    opened = OpenSequence(1, 1, 0, tuple(range(50)), SamplingParams(), 50)
    wire.traffic.sent(verifier_frame_to_proto(VerifierFrame(5, 4, 8, opens=(opened,))))
    told_ns = wire.now_ns
    wire.draft(1, round=0, queued_ns=40, drafting_ns=800)
    taken = wire.traffic.take(1, 1)
    assert taken.sent_bytes > 50
    assert taken.drafting_started_ns == told_ns + 40


def test_sequences_that_did_not_ask_are_not_counted() -> None:
    wire = Wire()
    wire.commit(1, round=3)
    wire.draft(1, round=4)
    assert wire.traffic.take(1, 5) == RoundTraffic()
    wire.traffic.begin(2)
    wire.traffic.end(2)
    wire.commit(2, round=3)
    wire.draft(2, round=4)
    assert wire.traffic.take(2, 5) == RoundTraffic()
