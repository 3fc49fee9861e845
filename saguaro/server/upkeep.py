"""Background work that must go on for as long as the service does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0


def kept_up(work: Callable[[], Awaitable[None]], what: str) -> asyncio.Task[None]:
    """A task that runs `work`; where that raises or returns, the log says so, and it is begun anew after a second."""
    return asyncio.create_task(_keep_up(work, what), name=what)


async def side_by_side(*works: Coroutine[Any, Any, None]) -> None:
    """All of them, until they end; the first fault of one ends the others and is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_up(work: Callable[[], Awaitable[None]], what: str) -> None:
    while True:
        try:
            await work()
            logger.error("%s ended; it is begun anew", what)
        except Exception:
            logger.exception("%s failed; it is begun anew", what)
        await asyncio.sleep(_PAUSE_SECONDS)
