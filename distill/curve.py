"""The learning curve: as CSV always, as PNG where matplotlib is installed."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from distill.checkpoint import Progress
from distill.evaluation import Evaluation

_DRAWN = {
    "greedy_agreement": "greedy agreement",
    "top3_agreement": "among its top 3",
    "overlap": "overlap, T = 1",
    "coupled_acceptance": "coupled acceptance, T = 1",
}


def point(progress: Progress, loss: float | None, evaluation: Evaluation) -> dict[str, float]:
    """One row. `loss` is the mean since the point before; None before the first step."""
    row: dict[str, float] = {"steps": progress.steps, "tokens": progress.tokens, "seconds": round(progress.seconds, 1)}
    if loss is not None:
        row["loss"] = round(loss, 4)
    for name, value in dataclasses.asdict(evaluation).items():
        if name == "greedy_hits":
            row |= {f"hits_k{k}_f{f}": round(rate, 4) for k, rates in value.items() for f, rate in rates.items()}
        elif isinstance(value, dict):
            row |= {f"{name}_k{k}": round(tokens, 4) for k, tokens in value.items()}
        else:
            row[name] = round(value, 4)
    return row


def write_curve(folder: Path, curve: Sequence[dict[str, float]]) -> None:
    """`curve.csv` and `curve.png` of all points so far."""
    names = list(dict.fromkeys(name for row in curve for name in row))
    work = folder / ".curve.csv.partial"
    with work.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(curve)
    work.replace(folder / "curve.csv")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, label in _DRAWN.items():
        axes.plot([row["tokens"] for row in curve], [row[name] for row in curve], marker="o", label=label)
    axes.set(title="held-out texts", xlabel="tokens trained on", ylabel="share", ylim=(0, 1))
    axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)
