"""Background work that must go on for as long as the gateway does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0


def kept_up(work: Callable[[], Awaitable[None]], what: str) -> asyncio.Task[None]:
    """A task that runs `work`; where that raises or returns, the log says so, and it is begun anew after a second."""
    return asyncio.create_task(_keep_up(work, what), name=what)


async def _keep_up(work: Callable[[], Awaitable[None]], what: str) -> None:
    while True:
        try:
            await work()
            logger.error("%s ended; it is begun anew", what)
        except Exception:
            logger.exception("%s failed; it is begun anew", what)
        await asyncio.sleep(_PAUSE_SECONDS)
