"""What the verifier remembers of a sequence at the speculator: how it is open there, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.core.prefix_hash import EMPTY, extended_hash
from saguaro.types import CommitRound, JustInTime, NotSpeculatingReason, TokenIds, VerificationOutcome
from verifier_service.sequence import Sequence

RETRY_NS = {
    NotSpeculatingReason.UNKNOWN_SEQUENCE: 0,
    NotSpeculatingReason.OVERLOADED: 1_000_000_000,
    NotSpeculatingReason.DRAINING: 1_000_000_000,
}  # the other refusals are for the sequence's life
_AGAIN_NS, _MOST_DOUBLINGS = 50_000_000, 7


@dataclass(slots=True)
class Opening:
    """One sequence as it is open at the speculator."""

    epoch: int
    refusal: str = ""  # why it gets no speculations; empty while it may
    retry_at_ns: int | None = None  # when a refused one may be opened again; None never
    num_before: int = 0  # openings of the sequence on this link that were refused before this one
    _hash: int = EMPTY
    _num_hashed: int = 0

    @property
    def is_refused(self) -> bool:
        """Whether nothing is looked up for it any more."""
        return bool(self.refusal)

    def refuse_for(self, reason: NotSpeculatingReason, now_ns: int) -> None:
        """The speculator's reason says whether and when the sequence may be opened again: ever later."""
        if reason in RETRY_NS:
            again_ns = _AGAIN_NS << min(self.num_before, _MOST_DOUBLINGS) if self.num_before else 0
            self.retry_at_ns = now_ns + max(RETRY_NS[reason], again_ns)

    def commit(
        self, sequence: Sequence, round: int, outcome: VerificationOutcome, speculation: TokenIds | JustInTime
    ) -> CommitRound:
        """What the speculator is told of `round`, whose outcome is among the sequence's tokens."""
        self._hash = extended_hash(self._hash, sequence.tokens[self._num_hashed :])
        self._num_hashed = len(sequence.tokens)
        return CommitRound(sequence.sequence_id, self.epoch, round, outcome, speculation, self._hash)


@dataclass(frozen=True, slots=True)
class Wait:
    """A sequence waits for a just-in-time speculation after the outcome of `round`."""

    round: int
    outcome: VerificationOutcome
    lookahead: int
    since_ns: int
