"""How often the target accepts the draft's next token, as measured."""

from __future__ import annotations

from dataclasses import dataclass

_PRIOR_TRIALS = 8.0
_DECAY = 0.98  # a round; the estimate follows the last fifty rounds or so
_GRID = 50  # rounded, so that the fan-out's cache of allocations is met


@dataclass(slots=True)
class AcceptanceEstimate:
    """Decayed share of accepted draft tokens, with a prior worth a few trials."""

    prior: float = 0.5
    _accepted: float = 0.0
    _trials: float = 0.0

    def observe(self, num_accepted: int, num_draft: int) -> None:
        """A round of `num_draft` tokens: each accepted one was a success, the first refused one a failure."""
        self._accepted = self._accepted * _DECAY + num_accepted
        self._trials = self._trials * _DECAY + min(num_accepted + 1, num_draft)

    @property
    def rate(self) -> float:
        """Estimate within (0, 1), in steps of 1/50."""
        rate = (self._accepted + self.prior * _PRIOR_TRIALS) / (self._trials + _PRIOR_TRIALS)
        return min(max(round(rate * _GRID) / _GRID, 1 / _GRID), 1 - 1 / _GRID)
