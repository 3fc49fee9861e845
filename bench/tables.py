"""What a reader sees: ratios first, absolute figures after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.acceptance import AcceptanceSetting
from bench.results import CellResult, SweepResult
from bench.summary import ModeSummary, Speculated

_ABSENT = "-"


def cell_report(result: CellResult) -> RenderableType:
    """One cell: its conditions, the ratios, the speeds, where the rounds' time went, and the curve over round trips."""
    cell = result.cell
    parts: list[RenderableType] = [
        Text(f"temperature {cell.temperature:g}, concurrency {cell.concurrency}", style="bold"),
        _ratios(result.ratios),
        _speeds(result),
        _latencies(result.modes),
        _rounds(result.modes),
        _parts(result.modes),
    ]
    if len(result.rtt_curve) > 1:
        parts.append(_curve(result.rtt_curve))
    if result.sweep is not None:
        parts.append(_sweep(result.sweep))
    return Group(*parts)


def acceptance_report(cells: Sequence[CellResult], settings: Sequence[AcceptanceSetting]) -> RenderableType:
    """All cells, by temperature and concurrency: what each acceptance mode accepts, hits and yields."""
    columns = ("mode", "temperature", "concurrency", "accepted", "hits", "tokens a round", "tokens per second")
    table = _table("SSD by acceptance mode", *columns)
    for result in cells:
        for setting in settings:
            if setting.mode in result.modes:
                summary = result.modes[setting.mode]
                table.add_row(
                    setting.label,
                    f"{result.cell.temperature:g}",
                    str(result.cell.concurrency),
                    _number(summary.speculated.acceptance_rate, 3),
                    _number(summary.speculated.hit_rate, 3),
                    _number(summary.speculated.tokens_per_round, 2),
                    f"{summary.tokens_per_second.median:.1f}",
                )
    return table


def origin_line(origin: Mapping[str, Any]) -> str:
    """Commit, versions, hardware and command in a few words."""
    versions, hardware = origin["versions"], origin["hardware"]
    commit = (origin["commit"] or "no checkout")[:12] + (" with changes" if origin["uncommitted_changes"] else "")
    return (
        f"commit {commit}; torch {versions['torch']}, transformers {versions['transformers']}; "
        f"{hardware['processor']}, {hardware['cores']} cores, load {origin['load_average']:.1f} at the start; "
        f"{origin['command']}"
    )


def _ratios(ratios: Mapping[str, float | None]) -> Table:
    table = _table("ratios, medians over batches", *(name.replace("_", " ") for name in ratios))
    table.add_row(*(_number(value, 3) for value in ratios.values()))
    return table


def _speeds(result: CellResult) -> Table:
    table = _table("tokens per second", "mode", "median", "range", "predicted", "a core", "an answer")
    for mode, summary in result.modes.items():
        speed = summary.tokens_per_second
        table.add_row(
            mode,
            f"{speed.median:.1f}",
            f"{speed.low:.1f}..{speed.high:.1f}",
            _number(result.predicted.get(mode), 1),
            f"{summary.tokens_per_second_per_core:.1f}",
            f"{summary.tokens_per_second_per_answer:.1f}",
        )
    return table


def _latencies(modes: Mapping[str, ModeSummary]) -> Table:
    table = _table("milliseconds", "mode", "TTFT", "token p50", "p99", "run p50", "p99")
    for mode, summary in modes.items():
        table.add_row(mode, _number(summary.ttft_ms, 0), *_pair(summary.inter_token_ms), *_pair(summary.inter_run_ms))
    return table


def _rounds(modes: Mapping[str, ModeSummary]) -> Table:
    table = _table("rounds", "mode", "tokens", "accepted", "hits", "after hit", "after miss", "bytes sent", "received")
    for mode, rounds in _with_rounds(modes):
        traffic = rounds.bytes_per_round
        table.add_row(
            mode,
            _number(rounds.tokens_per_round, 2),
            _number(rounds.acceptance_rate, 3),
            _number(rounds.hit_rate, 3),
            _number(rounds.hit_rate_after_hit, 3),
            _number(rounds.hit_rate_after_miss, 3),
            *(_number(None if traffic is None else traffic[way], 0) for way in ("sent", "received")),
        )
    return table


def _parts(modes: Mapping[str, ModeSummary]) -> Table:
    table = _table("a round's milliseconds, means", "mode", "wait", "verify", "accept", "drafting")
    for mode, rounds in _with_rounds(modes):
        groups = {
            "": rounds.round_ms,
            " after hit": rounds.round_ms_after_hit,
            " after miss": rounds.round_ms_after_miss,
        }
        for label, parts in groups.items():
            if parts is not None:
                table.add_row(
                    mode + label, *(f"{parts[name]:.1f}" for name in ("wait", "verify", "accept", "drafting"))
                )
    return table


def _with_rounds(modes: Mapping[str, ModeSummary]) -> list[tuple[str, Speculated]]:
    """transformers tells nothing of its rounds."""
    return [(mode, item.speculated) for mode, item in modes.items() if item.speculated.round_ms is not None]


def _curve(curve: Mapping[float, float]) -> Table:
    table = _table("SSD by added round trip", "RTT ms", "tokens per second", "over the shortest")
    shortest = curve[min(curve)]
    for rtt, speed in curve.items():
        table.add_row(f"{rtt:g}", f"{speed:.1f}", f"{speed / shortest:.3f}")
    return table


def _sweep(sweep: SweepResult) -> Table:
    title = f"automatic policy over fixed ones; over the best, {sweep.best}: {sweep.auto_over_best:.3f}"
    table = _table(title, "mode", "auto over it")
    for policy, ratio in sorted(sweep.auto_over.items(), key=lambda item: item[1]):
        table.add_row(policy, f"{ratio:.3f}")
    return table


def _table(title: str, *columns: str) -> Table:
    """Numbers to the right of a name."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 and name == "mode" else "right", no_wrap=True)
    return table


def _number(value: float | None, digits: int) -> str:
    return _ABSENT if value is None else f"{value:.{digits}f}"


def _pair(values: tuple[float, float] | None) -> tuple[str, str]:
    return (_ABSENT, _ABSENT) if values is None else (f"{values[0]:.0f}", f"{values[1]:.0f}")
