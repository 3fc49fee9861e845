"""What the verifier remembers of a sequence at the speculator: how it is open there, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.types import NotSpeculatingReason, VerificationOutcome

RETRY_NS = {
    NotSpeculatingReason.UNKNOWN_SEQUENCE: 0,
    NotSpeculatingReason.OVERLOADED: 1_000_000_000,
    NotSpeculatingReason.DRAINING: 1_000_000_000,
}  # the other refusals are for the sequence's life


@dataclass(slots=True)
class Opening:
    """One sequence as it is open at the speculator."""

    epoch: int
    refusal: str = ""  # why it gets no speculations; empty while it may
    retry_at_ns: int | None = None  # when a refused one may be opened again; None never

    @property
    def is_refused(self) -> bool:
        """Whether nothing is looked up for it any more."""
        return bool(self.refusal)


@dataclass(frozen=True, slots=True)
class Wait:
    """A sequence waits for a just-in-time speculation after the outcome of `round`."""

    round: int
    outcome: VerificationOutcome
    lookahead: int
    since_ns: int
