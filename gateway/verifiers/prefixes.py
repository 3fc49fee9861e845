"""Which verifier served which beginning of a prompt last, so that the next one finds its blocks there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

Place = TypeVar("Place", bound=Hashable)

BLOCK_TOKENS = 32
MAX_BLOCKS = 1 << 16  # two million tokens; some 10 MB


class PrefixMap(Generic[Place]):
    """Block-aligned prefixes by chained hashes, the least recently used forgotten first.

    A block's hash covers all blocks before it. Two prefixes with one hash would send a prompt to a verifier without
    its blocks, which costs a prefill and no token, so nothing compares them.
    """

    def __init__(self, *, block_tokens: int = BLOCK_TOKENS, max_blocks: int = MAX_BLOCKS) -> None:
        self._block_tokens = block_tokens
        self._max_blocks = max_blocks
        self._places: OrderedDict[int, Place] = OrderedDict()

    def remember(self, tokens: Sequence[int], place: Place) -> None:
        """`place` has the KV of `tokens` now."""
        for prefix in self._hashes(tokens):
            self._places[prefix] = place
            self._places.move_to_end(prefix)
        while len(self._places) > self._max_blocks:
            self._places.popitem(last=False)

    def find(self, tokens: Sequence[int], is_usable: Callable[[Place], bool]) -> Place | None:
        """Where the longest known prefix was served last, among places that are usable."""
        for prefix in reversed(list(self._hashes(tokens))):
            place = self._places.get(prefix)
            if place is not None and is_usable(place):
                return place
        return None

    def _hashes(self, tokens: Sequence[int]) -> Iterator[int]:
        prefix = 0
        for end in range(self._block_tokens, len(tokens) + 1, self._block_tokens):
            prefix = hash((prefix, tuple(tokens[end - self._block_tokens : end])))
            yield prefix
