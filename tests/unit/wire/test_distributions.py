"""Distributions travel with their tokens, and a message that does not add up is one malformed item."""

from __future__ import annotations

import pytest

from saguaro.errors import InvalidRequest
from saguaro.types import SparseDistribution, SpeculationEntries, SpeculationPiece, SpeculatorFrame, VerificationOutcome
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.distributions import split_distributions
from saguaro.wire.speculator import speculator_frame_from_proto, speculator_frame_to_proto


def distribution(num_pairs: int, mark: int) -> SparseDistribution:
    return SparseDistribution(bytes([mark] * 4 * num_pairs), bytes([mark + 1] * 2 * num_pairs))


def frame(*pieces: SpeculationPiece) -> SpeculatorFrame:
    return SpeculatorFrame(entries=(SpeculationEntries(7, 1, 3, pieces, complete=True, drafting_ns=5),))


DRAWN = frame(
    SpeculationPiece(VerificationOutcome(0, 9), 0, (4, 5), (distribution(3, 10), distribution(1, 20))),
    SpeculationPiece(VerificationOutcome(1, 8), 2, (6,), (distribution(2, 30),)),
)
COUPLED = frame(SpeculationPiece(VerificationOutcome(0, 9), 0, (4, 5)))


def travelled(message: pb.SpeculateResponse) -> tuple[SpeculatorFrame, int]:
    return speculator_frame_from_proto(pb.SpeculateResponse.FromString(message.SerializeToString()))


@pytest.mark.parametrize("sent", [DRAWN, COUPLED], ids=["rejection", "coupled"])
def test_each_token_arrives_with_its_own_distribution(sent: SpeculatorFrame) -> None:
    assert travelled(speculator_frame_to_proto(sent)) == (sent, 0)


@pytest.mark.parametrize("field", ["num_pairs", "pair_token_ids", "pair_probs"])
def test_arrays_that_do_not_fit_each_other_are_a_malformed_item(field: str) -> None:
    message = speculator_frame_to_proto(DRAWN)
    item = message.entries[0]
    shorter = getattr(item, field)[:-1]
    item.ClearField(field)
    item.MergeFrom(pb.SpeculationEntries(**{field: shorter}))
    received, malformed = travelled(message)
    assert (received.entries, malformed) == ((), 1)


def test_the_error_names_the_array_its_size_and_what_was_announced() -> None:
    with pytest.raises(InvalidRequest, match="pair_probs has 5 bytes; 3 pairs of 2 bytes were announced") as error:
        split_distributions([2, 1], bytes(12), bytes(5))
    assert error.value.field == "pair_probs"
