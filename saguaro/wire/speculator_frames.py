"""A speculator's frame in messages that the link takes: one nearly always, more where it has grown beyond the limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from saguaro.types import SpeculationEntries, SpeculationPiece, SpeculatorFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.wire.speculator import speculator_frame_to_proto

_ITEM_BYTES = 8  # at most, before the bytes of an item: its tag and its length


@dataclass(frozen=True, slots=True)
class CutFrame:
    """The messages, in order, and how many draft tokens were left out, since one with its law was over the limit."""

    messages: tuple[pb.SpeculateResponse, ...]
    num_dropped: int = 0


def cut_to_protos(frame: SpeculatorFrame, max_bytes: int) -> CutFrame:
    """The frame in messages of at most `max_bytes`, of which the verifier makes the same as of the whole.

    Pieces of one sequence's entries are spread over several messages, in order; only the last says `complete`.
    """
    whole = speculator_frame_to_proto(frame)
    if whole.ByteSize() <= max_bytes:
        return CutFrame((whole,))
    empty = pb.SpeculateResponse(free_kv_blocks=frame.free_kv_blocks)
    most = max_bytes - empty.ByteSize() - _ITEM_BYTES
    entries = [part for item in frame.entries for part in _parts(item, most)]
    fitting = [SpeculatorFrame(entries=(part,)) for part in entries if part.pieces or part.complete]
    num_dropped = sum(len(piece.token_ids) for item in frame.entries for piece in item.pieces)
    num_dropped -= sum(len(piece.token_ids) for part in entries for piece in part.pieces)
    statuses = [SpeculatorFrame(statuses=(status,)) for status in frame.statuses]
    items = (speculator_frame_to_proto(item) for item in (*statuses, *fitting))
    return CutFrame(tuple(_joined(items, empty, max_bytes)), num_dropped)


def _joined(
    items: Iterable[pb.SpeculateResponse], empty: pb.SpeculateResponse, max_bytes: int
) -> Iterator[pb.SpeculateResponse]:
    """As few messages as the items, each a message itself, go into in their order."""
    message, size = pb.SpeculateResponse(), empty.ByteSize()
    message.CopyFrom(empty)
    for item in items:
        if size + item.ByteSize() > max_bytes:
            yield message
            message, size = pb.SpeculateResponse(), empty.ByteSize()
            message.CopyFrom(empty)
        message.MergeFrom(item)
        message.free_kv_blocks = empty.free_kv_blocks
        size += item.ByteSize()
    yield message


def _parts(item: SpeculationEntries, max_bytes: int) -> Iterator[SpeculationEntries]:
    """The entries in parts of at most `max_bytes`: halves, until they fit."""
    if speculator_frame_to_proto(SpeculatorFrame(entries=(item,))).ByteSize() <= max_bytes:
        yield item
        return
    first, rest = _halves(item.pieces)
    if not rest:  # one token, and its law is too large
        yield replace(item, pieces=())
        return
    yield from _parts(replace(item, pieces=first, complete=False), max_bytes)
    yield from _parts(replace(item, pieces=rest), max_bytes)


Pieces = tuple[SpeculationPiece, ...]


def _halves(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """Two parts of the pieces, or of the tokens of one; the second is empty for one token."""
    if len(pieces) > 1:
        middle = len(pieces) // 2
        return pieces[:middle], pieces[middle:]
    (piece,) = pieces or (None,)
    if piece is None or len(piece.token_ids) < 2:
        return pieces, ()
    middle = len(piece.token_ids) // 2
    first = replace(piece, token_ids=piece.token_ids[:middle], distributions=piece.distributions[:middle])
    rest = replace(
        piece,
        offset=piece.offset + middle,
        token_ids=piece.token_ids[middle:],
        distributions=piece.distributions[middle:],
    )
    return (first,), (rest,)
