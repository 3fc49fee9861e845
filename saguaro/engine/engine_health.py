"""What health says of a service with an engine, from what its engine does; and when the process had better end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from saguaro.engine.engine_thread import EngineThread
from saguaro.errors import ServiceFault

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2
_LATE_SECONDS = 1.0
_GIVE_UP_SECONDS = 300.0


async def keep_engine_ready(
    engine: EngineThread,
    say_ready: Callable[[bool], Awaitable[None]],
    *,
    give_up_seconds: float = _GIVE_UP_SECONDS,
) -> None:
    """Say that the service is not ready while its engine hangs or fails, and that it is when the engine is well again.

    Ends only with ServiceFault: when the engine thread is dead, or in trouble for `give_up_seconds`.
    """
    is_ready = True
    while True:
        slept_at = time.monotonic()
        await asyncio.sleep(_CHECK_SECONDS)
        if time.monotonic() - slept_at > _CHECK_SECONDS + _LATE_SECONDS:
            continue  # the whole process stood still, and the engine with it
        trouble = engine.trouble
        if trouble is not None:
            reason, seconds = trouble
            if is_ready:
                log.error("not ready: %s (for %.1f s so far)", reason, seconds)
                await say_ready(False)
            if engine.fault is not None or seconds > give_up_seconds:
                raise ServiceFault(f"{reason}; the process ends so that it can be started anew")
        elif not is_ready:
            log.warning("ready again: the engine makes steps")
            await say_ready(True)
        is_ready = trouble is None
