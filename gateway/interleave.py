"""Several streams as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def interleaved(streams: Sequence[AsyncGenerator[Item]]) -> AsyncGenerator[Item]:
    """Items of all streams as they come. The first error of one ends all; closing this closes them."""
    # None says that one stream has ended. Bounded, so that a slow reader slows the streams as it does a single one.
    queue: asyncio.Queue[Item | Exception | None] = asyncio.Queue(maxsize=len(streams))
    tasks = [asyncio.create_task(_pass_on(stream, queue)) for stream in streams]
    try:
        num_open = len(tasks)
        while num_open:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(stream: AsyncGenerator[Item], queue: asyncio.Queue[Item | Exception | None]) -> None:
    try:
        async with contextlib.aclosing(stream):
            async for item in stream:
                await queue.put(item)
    except Exception as error:  # noqa: BLE001  # it belongs to whoever reads the queue
        await queue.put(error)
    else:
        await queue.put(None)
