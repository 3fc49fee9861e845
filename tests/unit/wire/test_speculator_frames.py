"""A frame beyond the limit of a message goes in several, of which the verifier makes the same."""

from __future__ import annotations

import random

import pytest

from saguaro.types import (
    NotSpeculatingReason,
    SequenceStatus,
    SparseDistribution,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    VerificationOutcome,
)
from saguaro.wire.speculator import speculator_frame_from_proto, speculator_frame_to_proto
from saguaro.wire.speculator_frames import CutFrame, cut_to_protos

Speculations = dict[tuple[int, int, int, VerificationOutcome], list[tuple[int, SparseDistribution | None]]]


def law(draw: random.Random, num_pairs: int) -> SparseDistribution:
    return SparseDistribution(draw.randbytes(4 * num_pairs), draw.randbytes(2 * num_pairs))


def random_frame(draw: random.Random, *, most_pairs: int = 64) -> SpeculatorFrame:
    def piece(number: int) -> SpeculationPiece:
        tokens = tuple(draw.randrange(50_000) for _ in range(draw.randrange(1, 17)))
        laws = tuple(law(draw, draw.randrange(1, most_pairs + 1)) for _ in tokens) if most_pairs else ()
        return SpeculationPiece(VerificationOutcome(number % 5, number), draw.randrange(4), tokens, laws)

    entries = tuple(
        SpeculationEntries(
            *(sequence_id, 3, 7, tuple(piece(number) for number in range(draw.randrange(0, 40)))),
            complete=draw.random() < 0.5,
            drafting_ns=5,
            queued_ns=6,
        )
        for sequence_id in range(draw.randrange(1, 9))
    )
    reasons = list(NotSpeculatingReason)
    statuses = tuple(SequenceStatus(number, 1, draw.choice(reasons)) for number in range(draw.randrange(300)))
    return SpeculatorFrame(entries, statuses, free_kv_blocks=11)


def received(cut: CutFrame, max_bytes: int) -> tuple[Speculations, list[int], list[SequenceStatus]]:
    """What the messages say together: tokens and laws of each outcome, who is complete, statuses."""
    speculations: Speculations = {}
    complete: list[int] = []
    statuses: list[SequenceStatus] = []
    for message in cut.messages:
        assert message.ByteSize() <= max_bytes
        assert message.free_kv_blocks == 11
        frame, malformed = speculator_frame_from_proto(message)
        assert not malformed
        statuses += frame.statuses
        for entries in frame.entries:
            assert entries.sequence_id not in complete, "something came after the last"
            complete += [entries.sequence_id] if entries.complete else []
            for piece in entries.pieces:
                key = (entries.sequence_id, entries.epoch, entries.round, piece.outcome)
                so_far = speculations.setdefault(key, [(-1, None)] * piece.offset)
                assert piece.offset == len(so_far), "a gap, or an overlap"
                so_far += zip(piece.token_ids, piece.distributions or [None] * len(piece.token_ids), strict=True)
    return speculations, complete, statuses


@pytest.mark.parametrize("max_bytes", [600, 2000, 65_536])
@pytest.mark.parametrize("most_pairs", [0, 64])
def test_no_message_is_over_the_limit_and_together_they_say_all(max_bytes: int, most_pairs: int) -> None:
    draw = random.Random(max_bytes + most_pairs)
    for _ in range(12):
        frame = random_frame(draw, most_pairs=most_pairs)
        cut = cut_to_protos(frame, max_bytes)
        whole = CutFrame((speculator_frame_to_proto(frame),))
        assert received(cut, max_bytes) == received(whole, 1 << 30)
        assert cut.num_dropped == 0


def test_a_frame_within_the_limit_is_one_message() -> None:
    frame = random_frame(random.Random(1))
    assert cut_to_protos(frame, 1 << 30).messages == (speculator_frame_to_proto(frame),)


def test_a_token_whose_law_alone_is_too_large_is_left_out_and_counted() -> None:
    draw = random.Random(2)
    laws = (law(draw, 8), law(draw, 500), law(draw, 8))
    piece = SpeculationPiece(VerificationOutcome(0, 1), 0, (1, 2, 3), laws)
    frame = SpeculatorFrame((SpeculationEntries(1, 1, 1, (piece,), complete=True),), (), 11)
    cut = cut_to_protos(frame, 1000)
    assert cut.num_dropped == 1
    assert all(message.ByteSize() <= 1000 for message in cut.messages)
    assert [entries.complete for message in cut.messages for entries in message.entries][-1]
