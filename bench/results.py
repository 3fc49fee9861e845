"""The result of a run as one JSON document: ratios first, then speeds, then everything, then where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measured import Turn
from bench.plan import PLAIN, SD, SSD, TRANSFORMERS_ASSISTED, BenchPlan, Cell, ssd_at
from bench.prediction import predict
from bench.prompts import source_of
from bench.runner import CellTurns
from bench.summary import ModeSummary, paired_ratio, summarize

_RATIOS = {"ssd_over_sd": SD, "ssd_over_plain": PLAIN, "ssd_over_assisted": TRANSFORMERS_ASSISTED}


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The automatic policy beside fixed ones, by paired batches.

    `best` is the fastest as measured here: the more are tried, the more of its lead is luck.
    """

    best: str
    auto_over_best: float
    auto_over: dict[str, float]  # by policy


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell's numbers. Ratios are medians over batches; those of modes that were not run are None."""

    cell: Cell
    ratios: dict[str, float | None]
    modes: dict[str, ModeSummary]
    predicted: dict[str, float | None]
    rtt_curve: dict[float, float]  # milliseconds -> tokens per second of SSD
    sweep: SweepResult | None

    @property
    def measured(self) -> dict[str, float]:
        """Median tokens per second by mode."""
        return {mode: summary.tokens_per_second.median for mode, summary in self.modes.items()}


def evaluate(plan: BenchPlan, measured: CellTurns, cores: Mapping[str, int]) -> CellResult:
    """Numbers of one cell; `cores` by mode."""
    turns = measured.turns
    modes = {mode: summarize(items, num_cores=cores[mode]) for mode, items in turns.items()}
    ssd: Sequence[Turn] = turns.get(SSD, ())
    ratios = {name: paired_ratio(ssd, turns.get(under, ())) for name, under in _RATIOS.items()}
    ratios["hit_round_over_forward"] = modes[SSD].speculated.hit_round_over_forward if SSD in modes else None
    curve = {
        rtt: modes[ssd_at(rtt)].tokens_per_second.median for rtt in sorted({0.0, *plan.rtts_ms}) if ssd_at(rtt) in modes
    }
    fixed = {setting.policy: turns[setting.policy] for setting in plan.sweep if setting.policy in turns}
    return CellResult(measured.cell, ratios, modes, predict(turns), curve, sweep_of(ssd, fixed))


def sweep_of(auto: Sequence[Turn], fixed: Mapping[str, Sequence[Turn]]) -> SweepResult | None:
    """None without an automatic policy or a fixed one to compare."""
    ratios = {policy: ratio for policy, turns in fixed.items() if (ratio := paired_ratio(auto, turns)) is not None}
    if not ratios:
        return None
    best = min(ratios, key=lambda policy: ratios[policy])
    return SweepResult(best, ratios[best], ratios)


def document(plan: BenchPlan, cells: Sequence[CellResult], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The whole run. The head is the first cell's: ratios, rates and speeds of SSD; `cells` has all."""
    first = cells[0]
    ssd = first.modes.get(SSD)
    return {
        "ratios": first.ratios,
        "hit_rate": None if ssd is None else ssd.speculated.hit_rate,
        "acceptance_rate": None if ssd is None else ssd.speculated.acceptance_rate,
        "predicted": first.predicted,
        "measured": first.measured,
        "cells": [_cell(item) for item in cells],
        "plan": dataclasses.asdict(plan) | {"prompts_from": {kind: source_of(kind) for kind in plan.kinds}},
        "provenance": dict(provenance),
    }


def _cell(result: CellResult) -> dict[str, Any]:
    return {
        "temperature": result.cell.temperature,
        "concurrency": result.cell.concurrency,
        "ratios": result.ratios,
        "predicted": result.predicted,
        "measured": result.measured,
        "modes": {mode: dataclasses.asdict(summary) for mode, summary in result.modes.items()},
        "ssd_tokens_per_second_by_rtt_ms": {f"{rtt:g}": speed for rtt, speed in result.rtt_curve.items()},
        "sweep": None if result.sweep is None else dataclasses.asdict(result.sweep),
    }
