"""Changes that the event loop wants of what the engine thread owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saguaro.errors import Unavailable

ENGINE_SECONDS = 10.0  # for the engine thread to come by between two steps


async def on_engine_thread(post: Callable[[Callable[[], None]], None], change: Callable[[], None]) -> None:
    """Run `change` on the engine thread, whose inbox takes it by `post`; returns when it is done.

    Raises what it raises, and Unavailable where the engine does not take it in time: then it may still be made.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(fault: Exception | None) -> None:
        if done.done():
            return  # nobody waits any more
        if fault is None:
            done.set_result(None)
        else:
            done.set_exception(fault)

    def run() -> None:
        fault = None
        try:
            change()
        except Exception as error:  # noqa: BLE001  # it is raised where the change was wanted
            fault = error
        loop.call_soon_threadsafe(settle, fault)

    post(run)
    try:
        await asyncio.wait_for(done, ENGINE_SECONDS)
    except TimeoutError:
        raise Unavailable(f"the verifier's engine did not take the change within {ENGINE_SECONDS:g} s") from None
