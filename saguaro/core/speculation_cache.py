"""The verifier's local cache: verification outcome -> speculation, for the round that each sequence expects.

The speculator streams entries while the verification runs, in pieces, in any interleaving over sequences. The verifier
asks once the outcome is known. Each entry belongs to one (sequence, epoch, round); what belongs neither to the round
that its sequence expects now nor to the one after it (see docs/decisions/0002) is dropped and counted. Only entries of
the expected round are answered.

Not thread-safe: the engine thread owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saguaro.types import (
    LookupResult,
    SparseDistribution,
    SpeculationEntries,
    SpeculationPiece,
    TokenIds,
    VerificationOutcome,
)


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """What the cache has for an outcome. Without a hit `token_ids` is empty (but a neighbour's) and `drafting_ns` 0.

    `drafting_ns`: from the speculator's taking up the round to its sending the last piece of this speculation.
    `distributions` are those that came with the tokens, in order; where every token came with one, each is its own.
    """

    result: LookupResult
    token_ids: TokenIds = ()
    drafting_ns: int = 0
    distributions: tuple[SparseDistribution, ...] = ()


@dataclass(slots=True)
class _Speculation:
    token_ids: TokenIds
    drafting_ns: int
    distributions: tuple[SparseDistribution, ...]


@dataclass(slots=True)
class _Round:
    """What was collected for one round of a sequence."""

    complete: bool = False
    speculations: dict[VerificationOutcome, _Speculation] = field(default_factory=dict)


@dataclass(slots=True)
class _Expected:
    """The round that a sequence expects, and the one after it, into which the speculator may run ahead."""

    epoch: int
    round: int
    now: _Round = field(default_factory=_Round)
    ahead: _Round = field(default_factory=_Round)

    def of(self, epoch: int, round: int) -> _Round | None:
        """Where entries of that epoch and round belong; None if nowhere."""
        if epoch != self.epoch:
            return None
        return {self.round: self.now, self.round + 1: self.ahead}.get(round)


class SpeculationCache:
    """Entries of each sequence's expected round (and the one after it), bounded in number and length.

    `num_stale` counts pieces that belonged nowhere: another round, epoch or sequence, a gap before them, or tokens that
    contradict an earlier piece. `num_refused` counts pieces that went, wholly or in part, beyond a bound.
    """

    def __init__(self, max_entries: int, max_tokens: int) -> None:
        """At most `max_entries` outcomes per sequence and round, and `max_tokens` tokens per outcome."""
        self._max_entries = max_entries
        self._max_tokens = max_tokens
        self._expected: dict[int, _Expected] = {}
        self.num_stale = 0
        self.num_refused = 0

    def expect(self, sequence_id: int, epoch: int, round: int) -> None:
        """Collect for this round from now on; drops what the sequence had for earlier rounds and other epochs."""
        expected = self._expected.get(sequence_id)
        known = expected.of(epoch, round) if expected else None
        if expected is None or known is None:
            self._expected[sequence_id] = _Expected(epoch, round)
        elif round > expected.round:
            self._expected[sequence_id] = _Expected(epoch, round, now=known)

    def insert(self, entries: SpeculationEntries) -> int:
        """Merge pieces into their round; returns how many were stale. More may come after `complete`."""
        expected = self._expected.get(entries.sequence_id)
        target = expected.of(entries.epoch, entries.round) if expected else None
        if target is None:
            num_stale = len(entries.pieces)
        else:
            num_stale = sum(not self._merge(target, piece, entries.drafting_ns) for piece in entries.pieces)
            target.complete = target.complete or entries.complete
        self.num_stale += num_stale
        return num_stale

    def lookup(self, sequence_id: int, outcome: VerificationOutcome) -> CacheAnswer:
        """HIT with at least one token; else MISS when the round is complete, LATE while more may come.

        NOT_SPECULATED for a sequence of which nothing is expected.
        """
        expected = self._expected.get(sequence_id)
        if expected is None:
            return CacheAnswer(LookupResult.NOT_SPECULATED)
        speculation = expected.now.speculations.get(outcome)
        if speculation is not None:
            return CacheAnswer(
                LookupResult.HIT, speculation.token_ids, speculation.drafting_ns, speculation.distributions
            )
        return CacheAnswer(LookupResult.MISS if expected.now.complete else LookupResult.LATE)

    def neighbour(self, sequence_id: int, outcome: VerificationOutcome) -> CacheAnswer:
        """What was drafted for the likeliest other bonus token after as many accepted tokens; empty if nothing was.

        A MISS, and no time was spent on it for this outcome.
        """
        expected = self._expected.get(sequence_id)
        prepared = expected.now.speculations if expected is not None else {}
        for other, item in prepared.items():
            if other.num_accepted == outcome.num_accepted:
                return CacheAnswer(LookupResult.MISS, item.token_ids, distributions=item.distributions)
        return CacheAnswer(LookupResult.MISS)

    def close(self, sequence_id: int) -> None:
        """Forget the sequence. Unknown ones are fine."""
        self._expected.pop(sequence_id, None)

    def _merge(self, target: _Round, piece: SpeculationPiece, drafting_ns: int) -> bool:
        """Extend the outcome's speculation by what is new in the piece; False if the piece does not fit on to it."""
        speculation = target.speculations.get(piece.outcome)
        known = speculation.token_ids if speculation else ()
        if piece.offset > len(known):
            return False
        overlap = known[piece.offset : piece.offset + len(piece.token_ids)]
        if piece.token_ids[: len(overlap)] != overlap:
            return False
        new = piece.token_ids[len(overlap) :]
        room = self._max_tokens - len(known)
        if speculation is None and len(target.speculations) >= self._max_entries:
            room = 0
        if len(new) > room:
            self.num_refused += 1
            new = new[:room]
        if new:
            laws = piece.distributions[len(overlap) : len(overlap) + len(new)]
            if speculation is not None:
                laws = speculation.distributions + laws
            target.speculations[piece.outcome] = _Speculation(known + new, drafting_ns, laws)
        return True
