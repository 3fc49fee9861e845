"""C of Saguaro sampling for the sequences in rejection mode that name none: fixed, or chosen by tokens a second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from saguaro.core.scaling_tuner import ScalingTuner
from saguaro.types import VerificationOutcome
from verifier_service.scheduler import Row
from verifier_service.sequence import Sequence as Generation

AUTO: Literal["auto"] = "auto"


class CachedScale:
    """The deployment's C. The engine thread's."""

    def __init__(self, setting: float | Literal["auto"]) -> None:
        self._fixed = 1.0 if setting == AUTO else setting
        self._tuner = ScalingTuner() if setting == AUTO else None
        self._since_ns: int | None = None  # the end of the last step that counts; None where none came before

    @property
    def value(self) -> float:
        """C to draft with now."""
        return self._fixed if self._tuner is None else self._tuner.scale

    def observe(
        self, running: Iterable[Generation], rows: Sequence[Row], outcomes: Sequence[VerificationOutcome], now_ns: int
    ) -> None:
        """A step ended with these outcomes, one for each row that chooses, while these sequences run.

        A step's time is from the end of the one before that emitted tokens of such sequences, so that their waiting
        counts. Steps with prompts in them tell nothing of C.
        """
        if self._tuner is None:
            return
        if not any(_follows(sequence) for sequence in running):
            self._since_ns = None
            return
        choosing = [row.sequence for row in rows if row.num_choosing]
        num_tokens = sum(
            outcome.num_accepted + 1 for sequence, outcome in zip(choosing, outcomes, strict=True) if _follows(sequence)
        )
        if any(row.is_prefill for row in rows):
            self._since_ns = now_ns
        elif num_tokens:
            if self._since_ns is not None:
                self._tuner.observe(num_tokens, now_ns - self._since_ns)
            self._since_ns = now_ns


def _follows(sequence: Generation) -> bool:
    return sequence.draws_drafts and sequence.sampling.cached_scale is None
