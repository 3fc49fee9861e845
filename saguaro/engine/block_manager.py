"""Blocks of KV memory: who holds which, and whose prompt prefix may be shared. Bookkeeping only, no torch.

A block holds the keys and values of `block_size` consecutive tokens of one sequence, in every layer. A sequence's
`BlockTable` lists its blocks in order. Full blocks of committed tokens are registered in a trie whose edges are the
blocks' tokens: a later prompt that begins with the same tokens adopts the blocks instead of computing them. The trie's
edges are compared token by token, so two different prefixes never share, whatever their hashes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

SlotIds = npt.NDArray[np.int64]

_EMPTY_PREFIX = 0


class OutOfBlocks(Exception):
    """The pool has fewer free blocks than asked for; nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """From a prefix to the prefix one block longer. Prefix ids are never used twice, so equal ids are equal tokens."""

    prefix_id: int
    block_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Registration:
    """The block that holds the last tokens of prefix `prefix_id`."""

    block: int
    prefix_id: int


class BlockManager:
    """All blocks of one KV pool: a reference count each, and the trie of shareable prefixes.

    A block is free when nobody holds it. A free block stays registered, so that a later prompt can still hit it, until
    its memory is wanted: unregistered blocks go first, then the registered ones, least recently freed first.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"{num_blocks} blocks of {block_size} tokens: both must be at least 1")
        self._block_size = block_size
        self._reference_counts = [0] * num_blocks
        self._blank = list(range(num_blocks - 1, -1, -1))  # free and unregistered; the next one is the last
        self._reusable: OrderedDict[int, None] = OrderedDict()  # free and registered; the next victim is the first
        self._registrations: dict[_Edge, _Registration] = {}
        self._edge_of_block: dict[int, _Edge] = {}
        self._last_prefix_id = _EMPTY_PREFIX

    @property
    def num_blocks(self) -> int:
        return len(self._reference_counts)

    @property
    def usage(self) -> float:
        """Share of blocks that sequences hold, 0 to 1."""
        return 1.0 - self.num_free / self.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, registered ones included."""
        return len(self._blank) + len(self._reusable)

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self._block_size

    def reference_count(self, block: int) -> int:
        """How many tables hold `block`."""
        return self._reference_counts[block]

    def _allocate(self, count: int) -> list[int]:
        """`count` blocks, one reference each. Raises OutOfBlocks and takes none if there are fewer."""
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks wanted, {self.num_free} of {self.num_blocks} free")
        blocks = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._reusable.popitem(last=False)
                del self._registrations[self._edge_of_block.pop(block)]
            self._reference_counts[block] = 1
            blocks.append(block)
        return blocks

    def _release(self, blocks: Sequence[int]) -> None:
        """Drops one reference each. Last first: a prefix is worth keeping longer than what follows it."""
        for block in reversed(blocks):
            count = self._reference_counts[block] - 1
            assert count >= 0, f"block {block} was released more often than taken"
            self._reference_counts[block] = count
            if count == 0 and block in self._edge_of_block:
                self._reusable[block] = None
            elif count == 0:
                self._blank.append(block)

    def _adopt(self, edge: _Edge) -> _Registration | None:
        """The block registered for `edge`, with one more reference; None if there is none."""
        registration = self._registrations.get(edge)
        if registration is not None:
            self._reusable.pop(registration.block, None)
            self._reference_counts[registration.block] += 1
        return registration

    def _register(self, edge: _Edge, block: int) -> int:
        """Makes `block` findable under `edge`; returns the id of the longer prefix.

        An identical block that is registered already stays the one to share; `block` remains its owner's alone.
        """
        registration = self._registrations.get(edge)
        if registration is None:
            self._last_prefix_id += 1
            registration = _Registration(block, self._last_prefix_id)
            self._registrations[edge] = registration
            self._edge_of_block[block] = edge
        return registration.prefix_id


class BlockTable:
    """One sequence's blocks, in order. Its owner frees it, or uses it as a context manager.

    Positions [0, num_committed) are final; those in full blocks are *sealed*: perhaps shared, never written again.
    """

    def __init__(self, manager: BlockManager) -> None:
        self._manager = manager
        self._blocks: list[int] = []
        self._slots: SlotIds = np.empty(0, dtype=np.int64)  # of every position that has a block
        self._num_committed = 0
        self._num_registered_blocks = 0
        self._prefix_id = _EMPTY_PREFIX  # of the first `_num_registered_blocks` blocks

    @property
    def blocks(self) -> tuple[int, ...]:
        return tuple(self._blocks)

    @property
    def capacity(self) -> int:
        """Number of positions that have a slot."""
        return len(self._slots)

    @property
    def num_committed(self) -> int:
        """Number of tokens that are final, with their KV written."""
        return self._num_committed

    @property
    def num_sealed(self) -> int:
        """Number of tokens in full committed blocks: never written again."""
        return self._num_registered_blocks * self._manager.block_size

    @property
    def is_sealed(self) -> bool:
        """Whether every block that it holds is sealed; so of a new table, which holds none."""
        return len(self._blocks) == self._num_registered_blocks

    def match_prefix(self, token_ids: Sequence[int]) -> int:
        """Adopts the blocks of the longest cached prefix of a prompt; returns the number of tokens that are there now.

        Whole blocks only, and at most `len(token_ids) - 1` tokens: the last one is always computed, since its logits
        are wanted. Asked again it goes on where it stood, as long as the table holds sealed blocks only.
        """
        if not self.is_sealed:
            raise ValueError(
                f"match_prefix on {len(self._blocks)} blocks, of which {self._num_registered_blocks} are sealed"
            )
        size, known = self._manager.block_size, len(self._blocks)
        for start in range(known * size, len(token_ids) - size, size):
            edge = _Edge(self._prefix_id, tuple(token_ids[start : start + size]))
            registration = self._manager._adopt(edge)
            if registration is None:
                break
            self._blocks.append(registration.block)
            self._prefix_id = registration.prefix_id
        if len(self._blocks) > known:
            self._num_registered_blocks = len(self._blocks)
            self._num_committed = self.num_sealed
            self._slots = self._slots_of(self._blocks)
        return self._num_committed

    def reserve(self, num_tokens: int) -> None:
        """Makes sure that positions [0, num_tokens) have slots. Raises OutOfBlocks, and then changes nothing."""
        missing = -(-num_tokens // self._manager.block_size) - len(self._blocks)
        if missing > 0:
            blocks = self._manager._allocate(missing)
            self._blocks += blocks
            self._slots = np.concatenate([self._slots, self._slots_of(blocks)])

    def commit(self, token_ids: Sequence[int], num_tokens: int) -> None:
        """Declares tokens [0, num_tokens) of `token_ids` final and their KV written; full blocks become shareable."""
        if not self._num_committed <= num_tokens <= min(len(token_ids), self.capacity):
            raise ValueError(
                f"commit of {num_tokens} tokens: {self._num_committed} are committed, {len(token_ids)} given, "
                f"{self.capacity} have slots"
            )
        self._num_committed = num_tokens
        size = self._manager.block_size
        for index in range(self._num_registered_blocks, num_tokens // size):
            edge = _Edge(self._prefix_id, tuple(token_ids[index * size : (index + 1) * size]))
            self._prefix_id = self._manager._register(edge, self._blocks[index])
        self._num_registered_blocks = num_tokens // size

    def truncate(self, num_tokens: int) -> None:
        """Rolls back to `num_tokens`: frees the blocks wholly beyond. Committed tokens cannot be rolled back."""
        if num_tokens < self._num_committed:
            raise ValueError(f"truncate to {num_tokens} tokens: {self._num_committed} are committed")
        kept = -(-num_tokens // self._manager.block_size)
        if kept < len(self._blocks):
            self._manager._release(self._blocks[kept:])
            del self._blocks[kept:]
            self._slots = self._slots[: kept * self._manager.block_size]

    def slots(self, start: int, end: int) -> SlotIds:
        """Slot ids, block * block_size + offset, of positions [start, end): int64 [end - start], read-only."""
        if not 0 <= start <= end <= self.capacity:
            raise ValueError(f"slots [{start}, {end}) of a table with {self.capacity}")
        view = self._slots[start:end]
        view.flags.writeable = False
        return view

    def free(self) -> None:
        """Gives every block back. Harmless when repeated; the table is as new afterwards."""
        self._manager._release(self._blocks)
        self._blocks = []
        self._slots = self._slots[:0]
        self._num_committed = self._num_registered_blocks = 0
        self._prefix_id = _EMPTY_PREFIX

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.free()

    def _slots_of(self, blocks: Sequence[int]) -> SlotIds:
        size = self._manager.block_size
        return (np.asarray(blocks, dtype=np.int64)[:, None] * size + np.arange(size, dtype=np.int64)).reshape(-1)
