"""What the rounds of answers say: how often they hit, what they accept, where their time goes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.measured import TimedAnswer
from saguaro.types import LookupResult, RoundReport

_MISSED = (LookupResult.MISS, LookupResult.LATE)


@dataclass(frozen=True, slots=True)
class RoundGroups:
    """The rounds of many answers, by what the round before them left: a cache hit, or something else.

    Round 0, the prompt's own forward, is in none; nor is an answer's last round, whose draft is cut to the room left.
    """

    after_hit: tuple[RoundReport, ...]
    after_miss: tuple[RoundReport, ...]
    undrafted: tuple[RoundReport, ...]  # after rounds that asked no cache

    @classmethod
    def of(cls, answers: Iterable[TimedAnswer]) -> RoundGroups:
        """Sort the rounds of these answers."""
        after_hit, after_miss, undrafted = [], [], []
        for answer in answers:
            for before, after in pairwise(answer.rounds[:-1]):
                if before.lookup is LookupResult.HIT:
                    after_hit.append(after)
                elif before.lookup in _MISSED:
                    after_miss.append(after)
                else:
                    undrafted.append(after)
        return cls(tuple(after_hit), tuple(after_miss), tuple(undrafted))

    @property
    def speculated(self) -> tuple[RoundReport, ...]:
        """After a hit or a miss."""
        return self.after_hit + self.after_miss

    @property
    def all(self) -> tuple[RoundReport, ...]:
        """Every round that counts."""
        return self.speculated + self.undrafted


def hit_rate(rounds: Sequence[RoundReport]) -> float | None:
    """Hits among the lookups of these rounds; None where there was no lookup."""
    hits = sum(item.lookup is LookupResult.HIT for item in rounds)
    lookups = hits + sum(item.lookup in _MISSED for item in rounds)
    return hits / lookups if lookups else None


def acceptance_rate(rounds: Sequence[RoundReport]) -> float | None:
    """a: accepted draft tokens among those that came to be judged, the first refused of a round being the last."""
    accepted = sum(item.num_accepted_tokens for item in rounds)
    judged = sum(min(item.num_accepted_tokens + 1, item.num_draft_tokens) for item in rounds)
    return accepted / judged if judged else None


def tokens_per_round(rounds: Sequence[RoundReport]) -> float | None:
    """Acceptance length, k + 1 on average."""
    return statistics.fmean(item.num_accepted_tokens + 1 for item in rounds) if rounds else None


def median_seconds(rounds: Sequence[RoundReport], part: Callable[[RoundReport], int]) -> float | None:
    """Median of a part's time, which `part` gives in nanoseconds."""
    return statistics.median(part(item) for item in rounds) / 1e9 if rounds else None


def hit_round_over_forward(groups: RoundGroups) -> float | None:
    """Median over rounds after a hit of (wait + verify + accept) / verify: 1 where nothing is added to the forward."""
    ratios = [
        (item.wait_ns + item.verify_ns + item.accept_ns) / item.verify_ns for item in groups.after_hit if item.verify_ns
    ]
    return statistics.median(ratios) if ratios else None


def part_milliseconds(rounds: Sequence[RoundReport]) -> dict[str, float] | None:
    """Mean milliseconds of a round by part; `drafting` is the speculator's time for its draft, hidden or waited for."""
    if not rounds:
        return None
    return {
        "wait": statistics.fmean(item.wait_ns for item in rounds) / 1e6,
        "verify": statistics.fmean(item.verify_ns for item in rounds) / 1e6,
        "accept": statistics.fmean(item.accept_ns for item in rounds) / 1e6,
        "drafting": statistics.fmean(item.drafting_ns for item in rounds) / 1e6,
    }


def bytes_per_round(rounds: Sequence[RoundReport]) -> dict[str, float] | None:
    """Mean bytes of a round between verifier and speculator, `sent` by the verifier and `received` by it."""
    if not rounds:
        return None
    return {
        "sent": statistics.fmean(item.sent_bytes for item in rounds),
        "received": statistics.fmean(item.received_bytes for item in rounds),
    }
