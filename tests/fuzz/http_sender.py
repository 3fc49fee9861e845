"""`python -m tests.fuzz.http_sender HOST PORT`: sends hostile requests, chunk by chunk as stdin asks; see `sender`."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import socket
import struct
import sys
from random import Random

from tests.fuzz.hostile_http import Hostile, hostile

_NICE = 10
_AT_ONCE = 8
_READ_BYTES = 4_096
# Who sends half a request and waits, waits in vain; nobody is kept waiting who sent a whole one.
_SECONDS = 0.25
_LINGER_NONE = struct.pack("ii", 1, 0)  # closing resets the connection


async def _exchange(host: str, port: int, request: Hostile) -> str:
    """The status that came, or why none did."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for part in request.parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if request.end == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            return "LEFT"
        if request.end == "close":
            return "LEFT"
        if request.end == "half":
            writer.write_eof()
        async with asyncio.timeout(_SECONDS):
            words = (await reader.read(_READ_BYTES)).split(b" ", 2)
        return words[1].decode("latin-1") if len(words) > 1 else "CLOSED"
    except TimeoutError:
        return "WAITING"
    except OSError:  # also that it is closed already, at our half
        return "RESET"
    finally:
        writer.close()


async def send(host: str, port: int, requests: list[Hostile]) -> collections.Counter[str]:
    """Ends by status."""
    ends: collections.Counter[str] = collections.Counter()
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            ends[await _exchange(host, port, request)] += 1

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return ends


async def main(host: str, port: str) -> None:
    """Until stdin ends."""
    os.nice(_NICE)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        seed, count = map(int, line.split())
        random = Random(seed)
        ends = await send(host, int(port), [hostile(random) for _ in range(count)])
        sys.stdout.write(json.dumps(ends) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
