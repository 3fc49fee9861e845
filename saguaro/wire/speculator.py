"""Speculate stream and speculator handshake: proto <-> types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from saguaro.errors import InvalidRequest
from saguaro.types import (
    AcceptanceMode,
    CloseSequence,
    CommitRound,
    JustInTime,
    NotSpeculatingReason,
    OpenSequence,
    SequenceStatus,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    SpeculatorInfo,
    VerificationOutcome,
    VerifierFrame,
)
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.common import identity_from_proto, identity_to_proto, sampling_from_proto, sampling_to_proto
from saguaro.wire.distributions import pairs_in, split_distributions


def verifier_frame_to_proto(frame: VerifierFrame) -> pb.SpeculateRequest:
    """A verifier's frame as it goes out."""
    return pb.SpeculateRequest(
        step_id=frame.step_id,
        lookahead_tokens=frame.lookahead,
        budget_outcomes=frame.budget,
        soft_deadline_ns=frame.soft_deadline_ns,
        opens=[_open_to_proto(item) for item in frame.opens],
        commits=[_commit_to_proto(item) for item in frame.commits],
        closes=[pb.CloseSequence(sequence_id=item.sequence_id, epoch=item.epoch) for item in frame.closes],
        cached_scale=frame.cached_scale,
    )


def verifier_frame_from_proto(message: pb.SpeculateRequest) -> VerifierFrame:
    """A verifier's frame as it came in; contents are judged where the sequence is known.

    Opens that this version cannot read, as of an acceptance mode that it does not know, are left out: see
    `unreadable_opens`.
    """
    return VerifierFrame(
        step_id=message.step_id,
        lookahead=message.lookahead_tokens,
        budget=message.budget_outcomes,
        soft_deadline_ns=message.soft_deadline_ns,
        opens=tuple(_open_from_proto(item) for item in message.opens if _is_readable(item)),
        commits=tuple(_commit_from_proto(item) for item in message.commits),
        closes=tuple(CloseSequence(item.sequence_id, item.epoch) for item in message.closes),
        cached_scale=message.cached_scale if message.HasField("cached_scale") else 1.0,
    )


def _open_to_proto(item: OpenSequence) -> pb.OpenSequence:
    return pb.OpenSequence(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        round=item.round,
        token_ids=item.token_ids,
        sampling=sampling_to_proto(item.sampling),
        num_prompt_tokens=item.num_prompt_tokens,
    )


def unreadable_opens(message: pb.SpeculateRequest) -> tuple[SequenceStatus, ...]:
    """What the verifier is told of the opens that `verifier_frame_from_proto` leaves out."""
    return tuple(
        SequenceStatus(item.sequence_id, item.epoch, NotSpeculatingReason.MALFORMED)
        for item in message.opens
        if not _is_readable(item)
    )


def _is_readable(item: pb.OpenSequence) -> bool:
    try:
        sampling_from_proto(item.sampling)
    except InvalidRequest:
        return False
    return True


def _open_from_proto(item: pb.OpenSequence) -> OpenSequence:
    sampling, _ = sampling_from_proto(item.sampling)
    return OpenSequence(
        item.sequence_id, item.epoch, item.round, tuple(item.token_ids), sampling, item.num_prompt_tokens
    )


def _commit_to_proto(item: CommitRound) -> pb.CommitRound:
    message = pb.CommitRound(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        round=item.round,
        num_accepted=item.outcome.num_accepted,
        bonus_token_id=item.outcome.bonus_token,
        prefix_hash=item.prefix_hash,
    )
    if isinstance(item.speculation, JustInTime):
        message.just_in_time.SetInParent()
        message.just_in_time.lookahead_tokens = item.speculation.lookahead
    else:
        message.explicit.SetInParent()
        message.explicit.token_ids.extend(item.speculation)
    return message


def _commit_from_proto(item: pb.CommitRound) -> CommitRound:
    is_just_in_time = item.WhichOneof("next") == "just_in_time"
    return CommitRound(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        round=item.round,
        outcome=VerificationOutcome(item.num_accepted, item.bonus_token_id),
        speculation=(
            JustInTime(item.just_in_time.lookahead_tokens) if is_just_in_time else tuple(item.explicit.token_ids)
        ),
        prefix_hash=item.prefix_hash if item.HasField("prefix_hash") else None,
    )


def speculator_frame_to_proto(frame: SpeculatorFrame) -> pb.SpeculateResponse:
    """A speculator's frame as it goes out."""
    return pb.SpeculateResponse(
        entries=[_entries_to_proto(item) for item in frame.entries],
        statuses=[
            pb.SequenceStatus(
                sequence_id=item.sequence_id,
                epoch=item.epoch,
                reason=cast(pb.NotSpeculatingReason, int(item.reason)),
            )
            for item in frame.statuses
        ],
        free_kv_blocks=frame.free_kv_blocks,
    )


def speculator_frame_from_proto(message: pb.SpeculateResponse) -> tuple[SpeculatorFrame, int]:
    """A speculator's frame as it came in, and how many of its items were malformed and left out.

    A status says of which sequences these were: what the speculator says of them cannot be trusted any more. A status
    for a reason that this version does not know is such an item: the sequence gets no speculations, whyever.
    """
    entries, statuses, malformed = [], [], 0
    for item in message.entries:
        try:
            entries.append(_entries_from_proto(item))
        except InvalidRequest:
            malformed += 1
            statuses.append(SequenceStatus(item.sequence_id, item.epoch, NotSpeculatingReason.MALFORMED))
    for status in message.statuses:
        try:
            statuses.append(SequenceStatus(status.sequence_id, status.epoch, NotSpeculatingReason(status.reason)))
        except ValueError:
            malformed += 1
            statuses.append(SequenceStatus(status.sequence_id, status.epoch, NotSpeculatingReason.MALFORMED))
    return SpeculatorFrame(tuple(entries), tuple(statuses), message.free_kv_blocks), malformed


def _entries_to_proto(item: SpeculationEntries) -> pb.SpeculationEntries:
    laws = [law for piece in item.pieces for law in piece.distributions]
    return pb.SpeculationEntries(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        round=item.round,
        num_accepted=[piece.outcome.num_accepted for piece in item.pieces],
        bonus_token_id=[piece.outcome.bonus_token for piece in item.pieces],
        offset=[piece.offset for piece in item.pieces],
        length=[len(piece.token_ids) for piece in item.pieces],
        token_ids=[token for piece in item.pieces for token in piece.token_ids],
        complete=item.complete,
        drafting_ns=item.drafting_ns,
        num_pairs=[pairs_in(law) for law in laws],
        pair_token_ids=b"".join(law.token_ids for law in laws),
        pair_probs=b"".join(law.probs for law in laws),
        queued_ns=item.queued_ns,
    )


def _entries_from_proto(item: pb.SpeculationEntries) -> SpeculationEntries:
    if not len(item.num_accepted) == len(item.bonus_token_id) == len(item.offset) == len(item.length):
        raise InvalidRequest("entries", "the packed arrays of the entries differ in length")
    if sum(item.length) != len(item.token_ids):
        raise InvalidRequest("entries", f"lengths add up to {sum(item.length)}, tokens are {len(item.token_ids)}")
    if item.num_pairs and len(item.num_pairs) != len(item.token_ids):
        raise InvalidRequest(
            "num_pairs", f"{len(item.num_pairs)} distributions for {len(item.token_ids)} draft tokens; give one each"
        )
    return SpeculationEntries(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        round=item.round,
        pieces=tuple(_pieces(item)),
        complete=item.complete,
        drafting_ns=item.drafting_ns,
        queued_ns=item.queued_ns,
    )


def _pieces(item: pb.SpeculationEntries) -> Iterable[SpeculationPiece]:
    tokens = tuple(item.token_ids)
    distributions = split_distributions(item.num_pairs, item.pair_token_ids, item.pair_probs)
    start = 0
    for num_accepted, bonus, offset, length in zip(
        item.num_accepted, item.bonus_token_id, item.offset, item.length, strict=True
    ):
        end = start + length
        yield SpeculationPiece(
            VerificationOutcome(num_accepted, bonus), offset, tokens[start:end], distributions[start:end]
        )
        start = end


def speculator_info_to_proto(info: SpeculatorInfo) -> pb.GetSpeculatorInfoResponse:
    """The speculator's side of the handshake."""
    return pb.GetSpeculatorInfoResponse(
        protocol_version=info.protocol_version,
        model=identity_to_proto(info.model),
        acceptance_modes=[int(mode) for mode in info.acceptance_modes],  # type: ignore[misc]  # enum values by number
        max_lookahead_tokens=info.max_lookahead,
        max_budget_outcomes=info.max_budget,
        num_kv_blocks=info.num_kv_blocks,
        free_kv_blocks=info.free_kv_blocks,
        num_sequences=info.num_sequences,
    )


def speculator_info_from_proto(message: pb.GetSpeculatorInfoResponse) -> SpeculatorInfo:
    """The handshake as the verifier reads it; modes that it does not know are left out."""
    known = {int(mode) for mode in AcceptanceMode}
    return SpeculatorInfo(
        protocol_version=message.protocol_version,
        model=identity_from_proto(message.model),
        acceptance_modes=tuple(AcceptanceMode(mode) for mode in message.acceptance_modes if mode in known),
        max_lookahead=message.max_lookahead_tokens,
        max_budget=message.max_budget_outcomes,
        num_kv_blocks=message.num_kv_blocks,
        free_kv_blocks=message.free_kv_blocks,
        num_sequences=message.num_sequences,
    )
