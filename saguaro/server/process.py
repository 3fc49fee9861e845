"""What surrounds a service in its process: settings, logging, placement on cores, exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from saguaro.config import ServiceSettings, load_settings, parse_cores
from saguaro.errors import ConfigurationError, ServiceFault

logger = logging.getLogger(__name__)

Settings = TypeVar("Settings", bound=ServiceSettings)


def run_service(
    kind: type[Settings], main: Callable[[Settings], Awaitable[None]], argv: Sequence[str] | None = None
) -> int:
    """Read settings, place the process, run `main`; the exit code: 0, or 1 where it cannot start or cannot go on.

    `main` imports torch, where it needs it: the placement must come first.
    """
    settings = load_settings(kind, sys.argv[1:] if argv is None else argv)
    configure_logging(settings.role, settings.log_level)
    try:
        apply_placement(settings.cores, settings.threads)
        asyncio.run(_awaited(main(settings)))
    except (ConfigurationError, ServiceFault) as error:
        logger.error("%s", error)
        return 1
    except KeyboardInterrupt:
        # Only before the service has its own signal handlers.
        return 130
    return 0


async def _awaited(work: Awaitable[None]) -> None:
    await work


def configure_logging(role: str, level: str) -> None:
    """One line a message, on stderr."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format=f"%(asctime)s %(levelname)s {role} %(message)s", force=True
    )


def apply_placement(cores: str | None, threads: int | None) -> int:
    """Pin the process to `cores` and size the thread pools of the libraries; call it before torch is imported.

    Returns the number of threads for a model forward: `threads`, else one a core that the process may use.
    Raises ConfigurationError for cores that this machine does not have.
    """
    if cores is not None:
        wanted, available = set(parse_cores(cores)), os.sched_getaffinity(0)
        if not wanted <= available:
            missing = ", ".join(map(str, sorted(wanted - available)))
            raise ConfigurationError(
                f"--cores {cores}: core {missing} is not available; available are {_ranges(sorted(available))}"
            )
        os.sched_setaffinity(0, wanted)
    count = threads if threads is not None else len(os.sched_getaffinity(0))
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(count)
    return count


def _ranges(cores: Sequence[int]) -> str:
    """(0, 1, 2, 5) as "0-2,5"."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
