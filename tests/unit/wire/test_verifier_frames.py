"""Long frames go in several messages that say the same; what no message can hold costs its own sequence alone."""

from __future__ import annotations

import numpy as np
import pytest

from saguaro.types import (
    CloseSequence,
    CommitRound,
    JustInTime,
    NotSpeculatingReason,
    OpenSequence,
    SamplingParams,
    SequenceStatus,
    VerificationOutcome,
    VerifierFrame,
)
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.speculator import verifier_frame_from_proto, verifier_frame_to_proto
from saguaro.wire.verifier_frames import SMALL_BYTES, cut_to_protos

MAX_BYTES = 1 << 20


def opened(sequence_id: int, num_tokens: int, token: int = 40_000) -> OpenSequence:
    return OpenSequence(sequence_id, 1, 0, (token,) * num_tokens, SamplingParams(acceptance=None), num_tokens)


def committed(sequence_id: int, bonus: int = 7) -> CommitRound:
    speculation = (1, 2, 3) if sequence_id % 2 else JustInTime(2)
    return CommitRound(sequence_id, 1, 4, VerificationOutcome(2, bonus), speculation)


def test_a_frame_of_usual_length_is_one_message_as_ever() -> None:
    frame = VerifierFrame(3, 4, 8, 77, (opened(1, 2000),), (committed(2),), (CloseSequence(3, 1),), 0.5)
    cut = cut_to_protos(frame, MAX_BYTES)
    assert cut.messages == (verifier_frame_to_proto(frame),)
    assert not cut.refused


def test_the_parts_say_in_the_same_order_what_the_whole_says() -> None:
    rng = np.random.default_rng(5)
    opens = tuple(opened(i, int(length)) for i, length in enumerate(rng.integers(1, 40_000, 40)))
    commits = tuple(committed(i) for i in range(100, 3000))
    frame = VerifierFrame(3, 4, 8, 77, opens, commits, tuple(CloseSequence(i, 9) for i in range(500)), 0.5)
    cut = cut_to_protos(frame, MAX_BYTES)
    assert not cut.refused
    for message in cut.messages:
        assert message.ByteSize() <= SMALL_BYTES or len(message.opens) == 1
    assert len(cut.messages) < 2 * verifier_frame_to_proto(frame).ByteSize() / SMALL_BYTES + 2
    whole = pb.SpeculateRequest()
    for message in cut.messages:
        part = verifier_frame_from_proto(message)
        assert (part.step_id, part.lookahead, part.budget, part.soft_deadline_ns) == (3, 4, 8, 77)
        assert part.cached_scale == 0.5
        whole.MergeFrom(message)
    assert whole == verifier_frame_to_proto(frame)
    # A sequence that is closed under one epoch and opened under another must not be closed after it was opened.
    kinds = [(bool(part.closes), bool(part.opens), bool(part.commits)) for part in cut.messages]
    assert kinds == sorted(kinds, key=lambda kind: (-kind[0], -kind[1]))


def test_an_open_that_is_too_long_is_refused_and_the_others_go() -> None:
    longest = OpenSequence(2, 8, 0, (40_000,) * (MAX_BYTES // 3 + 1), SamplingParams(), 1)
    frame = VerifierFrame(3, 4, 8, opens=(opened(1, 10), longest, opened(3, 10)), commits=(committed(4),))
    cut = cut_to_protos(frame, MAX_BYTES)
    assert cut.refused == (SequenceStatus(2, 8, NotSpeculatingReason.CONTEXT_LIMIT),)
    assert [item.sequence_id for message in cut.messages for item in message.opens] == [1, 3]
    assert [item.sequence_id for message in cut.messages for item in message.commits] == [4]


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_what_the_contract_has_no_room_for_is_refused_and_the_others_go(token: int) -> None:
    frame = VerifierFrame(
        3, 4, 8, opens=(opened(1, 10), opened(2, 10, token)), commits=(committed(3, bonus=token), committed(4))
    )
    cut = cut_to_protos(frame, MAX_BYTES)
    assert cut.refused == tuple(SequenceStatus(i, 1, NotSpeculatingReason.MALFORMED) for i in (2, 3))
    assert [item.sequence_id for message in cut.messages for item in message.opens] == [1]
    assert [item.sequence_id for message in cut.messages for item in message.commits] == [4]


def test_a_frame_of_which_nothing_is_left_is_no_message() -> None:
    cut = cut_to_protos(VerifierFrame(3, 4, 8, opens=(opened(2, 10, -1),)), MAX_BYTES)
    assert cut.messages == ()
