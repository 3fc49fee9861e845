"""The tree of branches that the speculator decodes in one batch.

The trunk is what the verifier verifies now: the committed tokens and the speculation after them. Each guessed outcome
(k, t*) is a branch: it leaves the trunk after k speculated tokens and goes on with t*. All branches grow by one token a
step. Nothing is copied: a branch reads the trunk's KV up to its fork, and its own.

Columns (KV entries that a step can see), with P committed tokens, L speculated tokens and B branches:

    0 .. P         committed tokens, the last bonus token included
    P .. P + L     speculation
    P + L + dB + j token d of branch j; d = 0 is the guessed bonus token itself
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saguaro.types import VerificationOutcome


@dataclass(frozen=True)
class TokenTree:
    """Positions and visibility of the branches' tokens, for one sequence.

    `prefix_length` is P, `speculation_length` L, and `outcomes` has one guess a branch, with num_accepted in 0..L, else
    ValueError.
    """

    prefix_length: int
    speculation_length: int
    outcomes: tuple[VerificationOutcome, ...]

    def __post_init__(self) -> None:
        for outcome in self.outcomes:
            if not 0 <= outcome.num_accepted <= self.speculation_length:
                raise ValueError(f"{outcome} forks outside a speculation of {self.speculation_length} tokens")

    @property
    def num_branches(self) -> int:
        """B."""
        return len(self.outcomes)

    @property
    def trunk_length(self) -> int:
        """KV entries of the trunk, P + L."""
        return self.prefix_length + self.speculation_length

    @functools.cached_property
    def _forks(self) -> NDArray[np.int64]:  # [B] k of each branch
        return np.array([outcome.num_accepted for outcome in self.outcomes], dtype=np.int64)

    def num_columns(self, step: int) -> int:
        """KV entries when token `step` of every branch is written: P + L + (step + 1) B."""
        return self.trunk_length + (step + 1) * self.num_branches

    def columns(self, step: int) -> NDArray[np.int64]:  # [B]
        """Where token `step` of each branch lies."""
        start = self.trunk_length + step * self.num_branches
        return np.arange(start, start + self.num_branches, dtype=np.int64)

    def positions(self, step: int) -> NDArray[np.int64]:  # [B]
        """Absolute position of token `step` of each branch: P + k + step."""
        return self.prefix_length + self._forks + step

    def mask(self, step: int) -> NDArray[np.bool_]:  # [B, num_columns(step)]
        """What token `step` of each branch sees: the trunk before its fork, its branch's earlier tokens, itself."""
        trunk = np.arange(self.trunk_length) < (self.prefix_length + self._forks)[:, None]
        own = np.tile(np.eye(self.num_branches, dtype=np.bool_), step + 1)
        return np.concatenate((trunk, own), axis=1)
