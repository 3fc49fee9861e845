"""The cost model's word beside each measured speed, from what the same run measured of the parts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.measured import Turn
from bench.rounds import RoundGroups, hit_rate, median_seconds, tokens_per_round
from saguaro.core.cost_model import RoundTimes, plain_speed, sd_speed, ssd_speed, steady_hit_rate
from saguaro.types import RoundReport


def predict(turns: Mapping[str, Sequence[Turn]]) -> dict[str, float | None]:
    """Tokens per second by mode name; None for modes of which no rounds are known, such as those of transformers.

    Times are medians, of the rounds of the mode itself: a verification, the drafting that a hit had behind it (T_p),
    the drafting that a miss waited for (T_b). At a concurrency c, c answers at the pace of one whose rounds cost what
    they cost in the batch.
    """
    return {mode: _predict(items) for mode, items in turns.items()}


def _predict(turns: Sequence[Turn]) -> float | None:
    groups = RoundGroups.of(answer for turn in turns for answer in turn.answers)
    concurrency = statistics.fmean(len(turn.answers) for turn in turns)
    speed = _ssd(groups) or _sd(groups) or _plain(groups)
    return None if speed is None else speed * concurrency


def _plain(groups: RoundGroups) -> float | None:
    forward = median_seconds(groups.undrafted, _verify_ns)
    return plain_speed(forward) if forward else None


def _sd(groups: RoundGroups) -> float | None:
    """Where every round is drafted after the one before it has ended."""
    tokens, verify = tokens_per_round(groups.after_miss), median_seconds(groups.after_miss, _verify_ns)
    just_in_time = median_seconds(groups.after_miss, _drafting_ns)
    if groups.after_hit or tokens is None or not verify or just_in_time is None:
        return None
    return sd_speed(tokens, RoundTimes(verify, 0.0, just_in_time))


def _ssd(groups: RoundGroups) -> float | None:
    verify, share = median_seconds(groups.speculated, _verify_ns), _hit_rate(groups)
    if not groups.after_hit or not verify or share is None:
        return None
    times = RoundTimes(
        verify,
        pre_speculation=median_seconds(groups.after_hit, _drafting_ns) or 0.0,
        just_in_time=median_seconds(groups.after_miss, _drafting_ns) or 0.0,
    )
    after_hit, after_miss = tokens_per_round(groups.after_hit), tokens_per_round(groups.after_miss)
    return ssd_speed(share, after_hit or 0.0, after_miss or 0.0, times)


def _hit_rate(groups: RoundGroups) -> float | None:
    """The fixed point where both rates are known, else the share as it was."""
    after_hit, after_miss = hit_rate(groups.after_hit), hit_rate(groups.after_miss)
    if after_hit is None or after_miss is None or (after_hit == 1.0 and after_miss == 0.0):
        return hit_rate(groups.speculated)
    return steady_hit_rate(after_hit, after_miss)


def _verify_ns(report: RoundReport) -> int:
    return report.verify_ns


def _drafting_ns(report: RoundReport) -> int:
    return report.drafting_ns
