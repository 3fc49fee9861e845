"""Prompt lookup: guess that a sequence goes on as it went on the last time its newest tokens occurred."""

from __future__ import annotations

from collections.abc import Sequence

from saguaro.types import TokenIds


class NgramIndex:
    """Where each n-gram of one sequence last ended. Grows with the sequence; costs no model."""

    def __init__(self, n: int = 3) -> None:
        self._n = n
        self._ends: dict[TokenIds, int] = {}
        self._num_indexed = 0

    def propose(self, tokens: Sequence[int], count: int) -> TokenIds:
        """Up to `count` tokens that followed the newest n tokens' last earlier occurrence; () if there was none."""
        n = self._n
        for end in range(max(self._num_indexed, n), len(tokens)):  # the newest n-gram itself stays out
            self._ends[tuple(tokens[end - n : end])] = end
        self._num_indexed = max(self._num_indexed, len(tokens))
        if len(tokens) < n:
            return ()
        known = self._ends.get(tuple(tokens[len(tokens) - n :]))
        return () if known is None else tuple(tokens[known : known + count])
