"""The KV memory of emulated models: each slot holds a 64-bit hash of the whole prefix that ends in it.

A prefix is hashed as the sum, modulo 2^64, of one word for each (token, position). So the hash of a slot is that of the
slot before it plus one word, a chunk of any length is one cumulative sum, and a wrong token, position or slot anywhere
before changes everything after, as it does with keys and values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from saguaro.engine.block_manager import SlotIds
from saguaro.engine.ragged_batch import Chunk

Words = npt.NDArray[np.uint64]

_EMPTY_PREFIX = np.uint64(0x5A67_7561_726F_5353)
_GOLDEN_GAMMA = np.uint64(0x9E37_79B9_7F4A_7C15)
_MULTIPLIERS = (np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_POSITION_BITS = np.uint64(32)


def splitmix64(words: Words) -> Words:
    """A random word for each: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014."""
    mixed = words + _GOLDEN_GAMMA
    for shift, multiplier in zip(_SHIFTS[:2], _MULTIPLIERS, strict=True):
        mixed ^= mixed >> shift
        mixed *= multiplier
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


class PrefixMemory:
    """Prefix hashes of every slot of a pool."""

    def __init__(self, num_slots: int, context_limit: int) -> None:
        # One more, never written, stands for what is before a sequence's first token.
        self._hashes: Words = np.zeros(num_slots + 1, dtype=np.uint64)
        self._hashes[num_slots] = _EMPTY_PREFIX
        self._empty_prefix = num_slots
        self._context_limit = context_limit

    def write(self, chunks: Sequence[Chunk]) -> Words:  # [T]
        """Writes the hashes of all tokens of `chunks` and returns them, chunk after chunk.

        Raises ValueError for a position at or beyond the context limit, and for a tree whose rows do not see their own
        slot last, or see each other in a circle.
        """
        num_tokens = sum(len(chunk.token_ids) for chunk in chunks)
        token_ids = np.fromiter(
            itertools.chain.from_iterable(chunk.token_ids for chunk in chunks), np.uint64, count=num_tokens
        )
        positions = np.concatenate([chunk.positions for chunk in chunks])
        if positions.max() >= self._context_limit:
            raise ValueError(f"position {positions.max()}: the context limit is {self._context_limit} tokens")
        write_slots = np.concatenate([chunk.write_slots for chunk in chunks])
        words = splitmix64(token_ids | positions.astype(np.uint64) << _POSITION_BITS)

        # A run is tokens each of which follows the one before: a causal chunk, or one row of a tree.
        parents, lengths = self._runs(chunks)
        sums = np.cumsum(words)
        ends = np.cumsum(lengths)
        sums_before = sums[ends - 1] - np.add.reduceat(words, ends - lengths)
        for _ in range(len(parents) + 1):
            inherited = self._hashes[parents]
            hashes = sums + np.repeat(inherited - sums_before, lengths)
            self._hashes[write_slots] = hashes
            # Again where a run follows another of the same forward, whose hash was not there yet.
            if np.array_equal(self._hashes[parents], inherited):
                return hashes
        raise ValueError("rows of a forward see each other in a circle")

    def copy(self, sources: SlotIds, targets: SlotIds) -> None:
        """Hashes of slots to as many others; all are read before any is written."""
        self._hashes[targets] = self._hashes[sources]

    def _runs(self, chunks: Sequence[Chunk]) -> tuple[SlotIds, npt.NDArray[np.int64]]:
        """Of each run: the slot that its first token follows, and its number of tokens."""
        parents: list[int] = []
        lengths: list[int] = []
        for chunk in chunks:
            num_tokens, num_seen = len(chunk.token_ids), len(chunk.context_slots)
            if chunk.visible is None:
                lengths.append(num_tokens)
                first = num_seen - num_tokens
                parents.append(int(chunk.context_slots[first - 1]) if first else self._empty_prefix)
            else:
                lengths += [1] * num_tokens
                parents += self._parents_in_tree(chunk, chunk.visible)
        return np.array(parents, dtype=np.int64), np.array(lengths, dtype=np.int64)

    def _parents_in_tree(self, chunk: Chunk, visible: npt.NDArray[np.bool_]) -> list[int]:
        """The slot that each row sees last before its own."""
        rows, last_column = np.arange(len(visible)), visible.shape[1] - 1
        own = last_column - visible[:, ::-1].argmax(axis=1)
        if not np.array_equal(chunk.context_slots[own], chunk.write_slots):
            raise ValueError("a row of a tree must see its own slot, and see it last")
        others = visible.copy()
        others[rows, own] = False
        parent = last_column - others[:, ::-1].argmax(axis=1)
        slots = np.where(others[rows, parent], chunk.context_slots[parent], self._empty_prefix)
        return [int(slot) for slot in slots]
