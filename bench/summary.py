"""Numbers of one mode in one cell (a temperature and a concurrency)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.measured import TimedAnswer, Turn
from bench.rounds import (
    RoundGroups,
    acceptance_rate,
    bytes_per_round,
    hit_rate,
    hit_round_over_forward,
    part_milliseconds,
    tokens_per_round,
)

_COLD_SHARE = 0.5  # an answer whose prompt was mostly in the KV pool already says nothing of a prefill


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Speculated:
    """What speculation did. Rates are None where nothing was there to count."""

    acceptance_rate: float | None
    tokens_per_round: float | None
    tokens_per_round_after_hit: float | None
    tokens_per_round_after_miss: float | None
    hit_rate: float | None
    hit_rate_after_hit: float | None
    hit_rate_after_miss: float | None
    hit_round_over_forward: float | None
    round_ms: dict[str, float] | None
    round_ms_after_hit: dict[str, float] | None
    round_ms_after_miss: dict[str, float] | None
    bytes_per_round: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """One mode's numbers; speeds in tokens per second, over all answers of a turn and for one of them.

    `inter_token_ms` spreads a run's wait over its tokens, `inter_run_ms` does not. `ttft_ms` counts only prompts that
    were not in the KV pool already; None where all were.
    """

    mode: str
    num_turns: int
    num_tokens: int
    tokens_per_second: Spread
    tokens_per_second_per_core: float
    tokens_per_second_per_answer: float
    ttft_ms: float | None
    inter_token_ms: tuple[float, float] | None  # p50, p99
    inter_run_ms: tuple[float, float] | None  # p50, p99
    speculated: Speculated


def summarize(turns: Sequence[Turn], *, num_cores: int) -> ModeSummary:
    """Of the turns of one mode in one cell, at least one."""
    answers = tuple(answer for turn in turns for answer in turn.answers)
    speed = Spread.of([turn.tokens_per_second for turn in turns])
    cold = [answer.ttft_seconds * 1e3 for answer in answers if answer.cached_share <= _COLD_SHARE]
    gaps = [gap for answer in answers for gap in _gaps(answer)]
    return ModeSummary(
        mode=turns[0].mode,
        num_turns=len(turns),
        num_tokens=sum(turn.num_tokens for turn in turns),
        tokens_per_second=speed,
        tokens_per_second_per_core=speed.median / num_cores,
        tokens_per_second_per_answer=statistics.median(Turn("", 0, (item,)).tokens_per_second for item in answers),
        ttft_ms=statistics.median(cold) if cold else None,
        inter_token_ms=_p50_p99([gap / count for gap, count in gaps for _ in range(count)]),
        inter_run_ms=_p50_p99([gap for gap, _ in gaps]),
        speculated=_speculated(answers),
    )


def _speculated(answers: tuple[TimedAnswer, ...]) -> Speculated:
    groups = RoundGroups.of(answers)
    return Speculated(
        acceptance_rate=acceptance_rate(groups.all),
        tokens_per_round=tokens_per_round(groups.all),
        tokens_per_round_after_hit=tokens_per_round(groups.after_hit),
        tokens_per_round_after_miss=tokens_per_round(groups.after_miss),
        hit_rate=hit_rate(groups.all),
        hit_rate_after_hit=hit_rate(groups.after_hit),
        hit_rate_after_miss=hit_rate(groups.after_miss),
        hit_round_over_forward=hit_round_over_forward(groups),
        round_ms=part_milliseconds(groups.all),
        round_ms_after_hit=part_milliseconds(groups.after_hit),
        round_ms_after_miss=part_milliseconds(groups.after_miss),
        bytes_per_round=bytes_per_round(groups.speculated),
    )


def _gaps(answer: TimedAnswer) -> list[tuple[float, int]]:
    """Milliseconds before each run but the first, and its tokens."""
    return [((after.at - before.at) * 1e3, after.num_tokens) for before, after in pairwise(answer.arrivals)]


def _p50_p99(values: Sequence[float]) -> tuple[float, float] | None:
    return (percentile(values, 0.5), percentile(values, 0.99)) if values else None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of the values do not exceed (nearest rank)."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def paired_ratio(over: Sequence[Turn], under: Sequence[Turn]) -> float | None:
    """Median over batches of how much faster `over` was than `under` on the same batch; None without a common batch.

    Pairs, because the turns on one batch run right after each other: what slows the machine slows both.
    """
    speeds = {turn.batch: turn.tokens_per_second for turn in under}
    ratios = [turn.tokens_per_second / speeds[turn.batch] for turn in over if turn.batch in speeds]
    return statistics.median(ratios) if ratios else None
