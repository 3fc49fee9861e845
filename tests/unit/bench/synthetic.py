"""Answers and rounds that never ran, with times that are easy to reckon with."""

from __future__ import annotations

from bench.measured import Arrival, TimedAnswer, Turn
from saguaro.types import LookupResult, RoundReport

HIT, MISS, LATE, NONE = LookupResult.HIT, LookupResult.MISS, LookupResult.LATE, LookupResult.NOT_SPECULATED


def report(
    number: int,
    lookup: LookupResult,
    *,
    accepted: int = 0,
    draft: int = 0,
    wait_ms: float = 0.0,
    verify_ms: float = 100.0,
    accept_ms: float = 0.0,
    drafting_ms: float = 0.0,
    sent_bytes: int = 0,
    received_bytes: int = 0,
    started_ms: float = 0.0,
    drafting_started_ms: float | None = None,
) -> RoundReport:
    return RoundReport(
        round=number,
        num_draft_tokens=draft,
        num_accepted_tokens=accepted,
        lookup=lookup,
        wait_ns=_ns(wait_ms),
        verify_ns=_ns(verify_ms),
        accept_ns=_ns(accept_ms),
        drafting_ns=_ns(drafting_ms),
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        started_ns=_ns(started_ms),
        drafting_started_ns=None if drafting_started_ms is None else _ns(drafting_started_ms),
    )


def _ns(milliseconds: float) -> int:
    return int(milliseconds * 1e6)


def dated_rounds() -> tuple[RoundReport, ...]:
    """Hit, hit, miss: the first two drafts lie under verifications, the last one in the wait after a miss."""
    return (
        report(1, HIT, started_ms=600, drafting_ms=80, drafting_started_ms=510),
        report(2, MISS, started_ms=702, drafting_ms=90, drafting_started_ms=601),
        report(3, HIT, started_ms=860, drafting_ms=50, drafting_started_ms=805),
    )


def ssd_rounds() -> tuple[RoundReport, ...]:
    """Prompt hits; then hit, miss, hit, and the end."""
    return (
        report(0, HIT, verify_ms=500),
        report(1, HIT, accepted=4, draft=4, wait_ms=1, accept_ms=1, drafting_ms=80),
        report(2, MISS, accepted=2, draft=4, wait_ms=1, accept_ms=3, drafting_ms=90),
        report(3, HIT, accepted=1, draft=4, wait_ms=55, drafting_ms=50),
        report(4, HIT, accepted=4, draft=4, wait_ms=2, accept_ms=4, drafting_ms=85),
        report(5, NONE, accepted=0, draft=1, drafting_ms=85),
    )


def sd_rounds() -> tuple[RoundReport, ...]:
    middle = tuple(report(n, MISS, accepted=2, draft=4, wait_ms=51, drafting_ms=50) for n in range(1, 5))
    return (report(0, MISS), *middle, report(5, NONE))


def plain_rounds(verify_ms: float = 80.0) -> tuple[RoundReport, ...]:
    return tuple(report(n, NONE, verify_ms=verify_ms) for n in range(6))


def answer(
    *, rounds: tuple[RoundReport, ...] = (), pace_seconds: float = 0.1, cached_share: float = 0.0, sent_at: float = 0.0
) -> TimedAnswer:
    """First token after half a second, then four runs of two tokens."""
    arrivals = [Arrival(sent_at + 0.5, 1)]
    arrivals += [Arrival(sent_at + 0.5 + pace_seconds * run, 2) for run in range(1, 5)]
    return TimedAnswer(sent_at, tuple(arrivals), tuple(range(100, 109)), cached_share, rounds)


def turn(mode: str, batch: int, *, pace_seconds: float = 0.1, rounds: tuple[RoundReport, ...] = ()) -> Turn:
    return Turn(mode, batch, (answer(rounds=rounds, pace_seconds=pace_seconds),))


def all_turns() -> dict[str, list[Turn]]:
    """Two batches of the four modes that the ratios need."""
    paces = {"plain": 0.16, "sd": 0.12, "ssd": 0.08, "transformers_assisted": 0.2}
    rounds = {"plain": plain_rounds(), "sd": sd_rounds(), "ssd": ssd_rounds()}
    return {
        mode: [turn(mode, batch, pace_seconds=pace * (1 + batch), rounds=rounds.get(mode, ())) for batch in range(2)]
        for mode, pace in paces.items()
    }
