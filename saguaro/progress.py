"""The line by which a service tells who started it how far its start is: `progress <role> <label> <fraction>`."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a start; `fraction` from 0 to 1, None where the end is not known."""

    role: str
    label: str
    fraction: float | None


def report_progress(role: str, label: str, fraction: float | None = None) -> None:
    """Write the line to stderr at once."""
    sys.stderr.write(format_progress(Progress(role, label, fraction)) + "\n")
    sys.stderr.flush()


def format_progress(progress: Progress) -> str:
    """Inverse of `parse_progress`."""
    fraction = "?" if progress.fraction is None else f"{progress.fraction:.3f}"
    return f"progress {progress.role} {progress.label} {fraction}"


def parse_progress(line: str) -> Progress | None:
    """The step that `line` reports; None for any other line."""
    words = line.split()
    if len(words) < 4 or words[0] != "progress":
        return None
    try:
        fraction = None if words[-1] == "?" else float(words[-1])
    except ValueError:
        return None
    return Progress(words[1], " ".join(words[2:-1]), fraction)
