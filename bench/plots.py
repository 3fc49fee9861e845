"""The figures: the throughput-latency frontier (the paper's figure 3), rounds on a time line, SSD over round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import CellResult
from saguaro.errors import ConfigurationError
from saguaro.types import LookupResult, RoundReport

_GANTT_ROUNDS = 16
_COLOURS = {"verify": "#3b6fb6", "hidden": "#59a14f", "waited": "#e15759"}


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of the time line, in milliseconds. `kind`: verify, hidden (drafting under it), waited (after a miss)."""

    kind: str
    start_ms: float
    length_ms: float


def time_line(rounds: Sequence[RoundReport]) -> list[Span]:
    """Verifications, and the drafting of what they verified, from the start of the first one's.

    As the reports date them: verifications exactly, drafting as `verifier_service.traffic` estimates it. Drafts that no
    verification used left no report. Drafting before the first verification shown is left out.
    """
    spans: list[Span] = []
    if not rounds:
        return spans
    origin_ns = rounds[0].started_ns
    for before, report in zip((None, *rounds), rounds, strict=False):
        spans.append(Span("verify", (report.started_ns - origin_ns) / 1e6, report.verify_ns / 1e6))
        if before is not None and report.drafting_started_ns is not None:
            kind = "hidden" if before.lookup is LookupResult.HIT else "waited"
            spans.append(Span(kind, (report.drafting_started_ns - origin_ns) / 1e6, report.drafting_ns / 1e6))
    return spans


def check_plot(file: Path) -> None:
    """Raises ConfigurationError for a picture that could not be written, before anything is measured in vain."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError("--plot needs matplotlib: pip install 'matplotlib>=3.10,<4'") from None

    kinds = Figure().canvas.get_supported_filetypes()
    if file.suffix.lower().removeprefix(".") not in kinds:
        raise ConfigurationError(f"--plot is {file}; its name must end with one of .{', .'.join(sorted(kinds))}")
    if file.exists():
        raise ConfigurationError(f"--plot {file} is there already; name another file, or remove it")
    if not file.parent.is_dir():
        raise ConfigurationError(f"--plot is {file}, but there is no folder {file.parent}")


def write_plot(file: Path, cells: Sequence[CellResult], rounds: Sequence[RoundReport]) -> None:
    """One picture; `rounds` are those of one SSD answer. The frontier is that of the first cell's temperature."""
    from matplotlib.figure import Figure

    curve = cells[0].rtt_curve
    num_panels = 3 if len(curve) > 1 else 2
    figure = Figure(figsize=(7 * num_panels, 5), layout="constrained")
    panels = figure.subplots(1, num_panels)
    _draw_frontier(panels[0], [cell for cell in cells if cell.cell.temperature == cells[0].cell.temperature])
    _draw_time_line(panels[1], time_line(rounds[1 : _GANTT_ROUNDS + 1]))
    if num_panels == 3:
        panels[2].plot(list(curve), list(curve.values()), marker="o")
        panels[2].set(
            title="SSD by added round trip", xlabel="round trip, ms", ylabel="tokens per second", ylim=(0, None)
        )
    figure.savefig(file, dpi=120)


def _draw_frontier(axes: Any, cells: Sequence[CellResult]) -> None:
    for mode in cells[0].modes:
        points = [(cell.modes[mode], cell.cell.concurrency) for cell in cells]
        across = [summary.tokens_per_second_per_answer for summary, _ in points]
        up = [summary.tokens_per_second_per_core for summary, _ in points]
        axes.plot(across, up, marker="o", label=mode)
        for x, y, (_, concurrency) in zip(across, up, points, strict=True):
            axes.annotate(str(concurrency), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.set(
        title=f"throughput and latency by concurrency, temperature {cells[0].cell.temperature:g}",
        xlabel="tokens per second of one answer",
        ylabel="tokens per second per core",
        xlim=(0, None),
        ylim=(0, None),
    )
    axes.legend()


def _draw_time_line(axes: Any, spans: Sequence[Span]) -> None:
    rows = {"verify": 1, "hidden": 0, "waited": 0}
    labels = {"verify": "verification", "hidden": "drafting under a verification", "waited": "drafting after a miss"}
    for kind, label in labels.items():
        bars = [(span.start_ms, span.length_ms) for span in spans if span.kind == kind]
        axes.broken_barh(
            bars, (rows[kind] - 0.4, 0.8), facecolor=_COLOURS[kind], edgecolor="white", linewidth=0.5, label=label
        )
    axes.set(title="rounds of one answer", xlabel="milliseconds", yticks=[0, 1], yticklabels=["speculator", "verifier"])
    axes.set_ylim(-0.6, 2.1)
    axes.legend(loc="upper right")
