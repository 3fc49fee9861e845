"""A verifier's frame in messages that any speculator takes: one nearly always, more where it has many long prompts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from saguaro.types import NotSpeculatingReason, SequenceStatus, VerifierFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.speculator import verifier_frame_to_proto

SMALL_BYTES = 65_536  # no service can be set to take less


@dataclass(frozen=True, slots=True)
class CutFrame:
    """The messages, in order, and the sequences whose own message could not be among them, each with the reason."""

    messages: tuple[pb.SpeculateRequest, ...]
    refused: tuple[SequenceStatus, ...] = ()


def cut_to_protos(frame: VerifierFrame, max_bytes: int) -> CutFrame:
    """The frame in messages of at most SMALL_BYTES, of which the speculator makes the same as of the whole.

    An open that is longer goes alone. One of more than `max_bytes` is refused as over the context limit, an open or
    commit that the contract has no room for (a token id beyond 32 bits) as malformed: neither costs another sequence
    its message. Raises ValueError or TypeError where the frame's own numbers are such.
    """
    if sum(len(opened.token_ids) for opened in frame.opens) <= SMALL_BYTES:  # a token takes a byte at least
        with contextlib.suppress(ValueError, TypeError):  # of one of the items, which is found below
            whole = verifier_frame_to_proto(frame)
            if whole.ByteSize() <= SMALL_BYTES:
                return CutFrame((whole,))
    head = replace(frame, opens=(), commits=(), closes=())
    verifier_frame_to_proto(head)  # what is nobody's can be charged to nobody
    refused: list[SequenceStatus] = []
    items = _written(_single_items(head, frame), max_bytes, refused)
    return CutFrame(tuple(_joined(items)), tuple(refused))


def _single_items(head: VerifierFrame, frame: VerifierFrame) -> Iterator[VerifierFrame]:
    """One item each, in the order in which a speculator takes those of one frame."""
    yield from (replace(head, closes=(closed,)) for closed in frame.closes)
    yield from (replace(head, opens=(opened,)) for opened in frame.opens)
    yield from (replace(head, commits=(commit,)) for commit in frame.commits)


def _written(
    items: Iterable[VerifierFrame], max_bytes: int, refused: list[SequenceStatus]
) -> Iterator[pb.SpeculateRequest]:
    for item in items:
        try:
            message = verifier_frame_to_proto(item)
        except (ValueError, TypeError):
            refused += _refusal(item, NotSpeculatingReason.MALFORMED)
            continue
        if message.ByteSize() > max_bytes:
            refused += _refusal(item, NotSpeculatingReason.CONTEXT_LIMIT)
        else:
            yield message


def _refusal(item: VerifierFrame, reason: NotSpeculatingReason) -> list[SequenceStatus]:
    opened = [SequenceStatus(own.sequence_id, own.epoch, reason) for own in item.opens]
    return opened + [SequenceStatus(own.sequence_id, own.epoch, reason) for own in item.commits]


def _joined(items: Iterable[pb.SpeculateRequest]) -> Iterator[pb.SpeculateRequest]:
    """As few messages as the items, each a message itself, go into in their order."""
    message: pb.SpeculateRequest | None = None
    size = 0
    for item in items:
        item_size = item.ByteSize()
        if message is None or size + item_size > SMALL_BYTES:
            if message is not None:
                yield message
            message, size = item, item_size
        else:
            message.MergeFrom(item)
            size += item_size
    if message is not None:
        yield message
