"""One forward's work: chunks of any length from any sequences, laid out flat, with who sees what.

Everything that is linear in tokens runs on the flat axis `[T]` without padding. Only attention needs rectangles: chunks
of similar query and context length form a group that is padded together, so that a long prefill pads nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from saguaro.engine.block_manager import BlockTable, SlotIds

_SMALLEST_QUERY_BUCKET = 8  # padding a few query rows is cheaper than one more attention call a layer
_WORTH_A_GROUP = 512  # likewise for context slots: padding that one more call must save


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive work of one sequence: q tokens to run against L context slots.

    Prefill, decode and verification are causal: `visible` None, query i sees the first L - q + i + 1 context slots, the
    last of which is its own. A tree states `visible` itself; each row must see at least one slot.
    Logits are wanted for the last `num_logits` tokens; 0 for all but the last chunk of a prompt.
    """

    token_ids: Sequence[int]  # [q]
    positions: Sequence[int] | npt.NDArray[np.int64]  # [q]: rotary positions
    write_slots: SlotIds  # [q]: where the tokens' KV goes
    context_slots: SlotIds  # [L]: every slot that some query sees, the chunk's own included
    visible: npt.NDArray[np.bool_] | None = None  # [q, L]
    num_logits: int = 1

    def __post_init__(self) -> None:
        q, length = len(self.token_ids), len(self.context_slots)
        if not 1 <= q <= length or np.shape(self.positions) != (q,) or len(self.write_slots) != q:
            raise ValueError(
                f"a chunk of {q} tokens with positions {np.shape(self.positions)}, {len(self.write_slots)} write slots "
                f"and {length} context slots"
            )
        if not 0 <= self.num_logits <= q:
            raise ValueError(f"{self.num_logits} logits wanted of {q} tokens")
        if self.visible is not None and (self.visible.shape != (q, length) or not self.visible.any(axis=1).all()):
            raise ValueError(f"`visible` must be [{q}, {length}], each row with a slot to see: {self.visible.shape}")

    @staticmethod
    def causal(token_ids: Sequence[int], start: int, table: BlockTable, num_logits: int) -> Chunk:
        """Tokens at positions [start, start + q) of `table`, which has slots for them and KV for all before them."""
        if start < table.num_sealed:
            raise ValueError(f"writing position {start}: the first {table.num_sealed} are sealed, perhaps shared")
        end = start + len(token_ids)
        return Chunk(
            token_ids=token_ids,
            positions=np.arange(start, end),
            write_slots=table.slots(start, end),
            context_slots=table.slots(0, end),
            num_logits=num_logits,
        )


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """S chunks padded to one query length and one context length."""

    query_rows: Tensor  # [S, q_max] int64, into [T]; padding repeats the chunk's first token
    context_slots: Tensor  # [S, L_max] int64; padding repeats the chunk's first slot, whose content is valid
    mask: Tensor | None  # [S, 1, q_max, L_max] bool, True is seen; None: all is seen
    context_span: slice | None  # the slots of a lone chunk where they are consecutive: readable without a gather


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """The chunks of one forward as tensors, T tokens and R wanted logit rows in all."""

    input_ids: Tensor  # [1, T] int64
    position_ids: Tensor  # [1, T] int64
    write_slots: Tensor  # [T] int64
    write_span: slice | None  # the same where they are consecutive
    logit_rows: Tensor  # [R] int64, into [T]
    row_offsets: tuple[slice, ...]  # for each chunk, its rows among the R
    groups: tuple[AttentionGroup, ...]
    flat_order: Tensor | None  # [T] int64: row of each token in the groups' outputs, one after another; None: the same

    @staticmethod
    def build(chunks: Sequence[Chunk], device: torch.device | str = "cpu", *, context_multiple: int = 1) -> RaggedBatch:
        """Lays out `chunks` (at least one) in their order; contexts are padded to a multiple of `context_multiple`."""
        if not chunks:
            raise ValueError("a batch needs at least one chunk")
        lengths = np.array([len(chunk.token_ids) for chunk in chunks])
        ends = np.cumsum(lengths)
        num_logits = np.array([chunk.num_logits for chunk in chunks])
        row_ends = np.cumsum(num_logits).tolist()

        members: dict[int, list[int]] = {}
        for index, chunk in enumerate(chunks):
            members.setdefault(_padded_queries(len(chunk.token_ids)), []).append(index)
        groups = []
        flat_order = np.empty(int(ends[-1]), dtype=np.int64)
        num_padded = 0
        for indices in (part for alike in members.values() for part in _by_context(alike, chunks)):
            starts, group_lengths = (ends - lengths)[indices], lengths[indices]
            query_rows, is_real = _pad_ranges(starts, group_lengths)
            flat_order[query_rows[is_real]] = num_padded + np.flatnonzero(is_real)
            num_padded += query_rows.size
            members_of_group = [chunks[index] for index in indices]
            groups.append(_attention_group(members_of_group, query_rows, is_real, context_multiple, device))

        def tensor(array: npt.ArrayLike) -> Tensor:
            return torch.as_tensor(np.asarray(array, dtype=np.int64), device=device)

        write_slots = np.concatenate([chunk.write_slots for chunk in chunks])
        wanted = [np.arange(end - count, end) for end, count in zip(ends, num_logits, strict=True)]
        return RaggedBatch(
            input_ids=tensor(np.concatenate([np.asarray(chunk.token_ids) for chunk in chunks]))[None],
            position_ids=tensor(np.concatenate([np.asarray(chunk.positions) for chunk in chunks]))[None],
            write_slots=tensor(write_slots),
            write_span=_span(write_slots),
            logit_rows=tensor(np.concatenate(wanted)),
            row_offsets=tuple(slice(end - n, end) for end, n in zip(row_ends, num_logits.tolist(), strict=True)),
            groups=tuple(groups),
            flat_order=None if np.array_equal(flat_order, np.arange(num_padded)) else tensor(flat_order),
        )


def most_mask_cells(num_tokens: int, context: int) -> int:
    """(query, slot) pairs of the attention mask that a chunk takes at most, the padding to its group included."""
    return _padded_queries(num_tokens) * (context + _WORTH_A_GROUP)


def _padded_queries(num_tokens: int) -> int:
    """Chunks of as many query rows or fewer, but more than half of it, are padded together."""
    return 1 << (max(num_tokens, _SMALLEST_QUERY_BUCKET) - 1).bit_length()


def _by_context(indices: list[int], chunks: Sequence[Chunk]) -> list[list[int]]:
    """Those of `chunks` that are padded together: parts of `indices`, cut where the shorter contexts end.

    Cut at the place that saves the most padding, and each part again, as long as that is worth a group of its own.
    """
    lengths = np.array([len(chunks[index].context_slots) for index in indices])
    if len(indices) * int(lengths.max() - lengths.min()) < _WORTH_A_GROUP:
        return [indices]
    order = np.argsort(lengths, kind="stable")
    return [[indices[place] for place in part] for part in _cut(order, lengths[order])]


def _cut(order: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """`order` in consecutive parts; `lengths`, ascending, are theirs."""
    saved = np.arange(1, len(lengths)) * (lengths[-1] - lengths[:-1])  # by a cut behind each but the last
    if not len(saved) or saved.max() < _WORTH_A_GROUP:
        return [order]
    place = int(saved.argmax()) + 1
    return _cut(order[:place], lengths[:place]) + _cut(order[place:], lengths[place:])


def _pad_ranges(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Rows start, start + 1, ... of each range, padded by its start; and which are real. Both [S, longest]."""
    offsets = np.arange(lengths.max())
    is_real = offsets < lengths[:, None]
    return starts[:, None] + np.where(is_real, offsets, 0), is_real


def _attention_group(
    chunks: Sequence[Chunk],
    query_rows: npt.NDArray[np.int64],  # [S, q_max]
    is_real_query: npt.NDArray[np.bool_],  # [S, q_max]
    context_multiple: int,
    device: torch.device | str,
) -> AttentionGroup:
    q_max = query_rows.shape[1]
    lengths = np.array([len(chunk.context_slots) for chunk in chunks])
    l_max = -(-int(lengths.max()) // context_multiple) * context_multiple
    queries = is_real_query.sum(axis=1)
    context_slots = np.empty((len(chunks), l_max), dtype=np.int64)
    for row, chunk in enumerate(chunks):
        context_slots[row, : lengths[row]] = chunk.context_slots
        context_slots[row, lengths[row] :] = chunk.context_slots[0]

    num_seen = (lengths - queries)[:, None] + np.arange(q_max) + 1  # [S, q_max]
    mask = np.arange(l_max) < num_seen[:, :, None]
    for row, chunk in enumerate(chunks):
        if chunk.visible is not None:
            mask[row] = False
            mask[row, : queries[row], : lengths[row]] = chunk.visible
    mask[~is_real_query, 0] = True  # a row that sees nothing would be NaN
    return AttentionGroup(
        query_rows=torch.as_tensor(query_rows, device=device),
        context_slots=torch.as_tensor(context_slots, device=device),
        mask=None if mask.all() else torch.as_tensor(mask, device=device)[:, None],
        context_span=_span(context_slots[0]) if len(chunks) == 1 else None,
    )


def _span(slots: SlotIds) -> slice | None:
    """The range that `slots` runs through one by one, if it does."""
    first, last = int(slots[0]), int(slots[-1])
    if last - first + 1 != len(slots) or not bool((np.diff(slots) == 1).all()):
        return None
    return slice(first, last + 1)
