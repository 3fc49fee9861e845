"""The speculation cache between two threads: one puts in what comes over the link, the engine thread looks up."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from saguaro.core.speculation_cache import CacheAnswer, SpeculationCache
from saguaro.types import SpeculationEntries, VerificationOutcome


class LocalCache:
    """`SpeculationCache` behind a lock, with tokens that the target has; what has others is malformed and left out."""

    def __init__(self, *, max_entries: int, max_tokens: int, vocab_size: int) -> None:
        self._cache = SpeculationCache(max_entries, max_tokens)
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self.num_malformed = 0

    @property
    def num_stale(self) -> int:
        """Pieces that came for a round, epoch or sequence that was over."""
        return self._cache.num_stale

    def insert(self, entries: SpeculationEntries) -> None:
        """Entries came in. Any thread."""
        if any(max(piece.token_ids, default=0) >= self._vocab_size for piece in entries.pieces):
            self.num_malformed += 1
            return
        with self._lock:
            self._cache.insert(entries)

    def expect(self, sequence_id: int, epoch: int, round: int) -> None:
        """See `SpeculationCache.expect`."""
        with self._lock:
            self._cache.expect(sequence_id, epoch, round)

    def lookup(self, sequence_id: int, outcome: VerificationOutcome) -> CacheAnswer:
        """See `SpeculationCache.lookup`."""
        with self._lock:
            return self._cache.lookup(sequence_id, outcome)

    def neighbour(self, sequence_id: int, outcome: VerificationOutcome) -> CacheAnswer:
        """See `SpeculationCache.neighbour`."""
        with self._lock:
            return self._cache.neighbour(sequence_id, outcome)

    def close(self, sequence_ids: Iterable[int]) -> None:
        """Forget these sequences. Unknown ones are fine."""
        with self._lock:
            for sequence_id in sequence_ids:
                self._cache.close(sequence_id)
