"""`python -m tests.fuzz.sender ROLE ADDRESS`: sends mutated frames to a gRPC port, chunk by chunk as stdin asks.

A process of its own, behind the services in the queue for the processor, so that what the bystander sees is the
services' doing. A line "seed frames" on stdin is answered by a line of JSON: how many calls ended with each status.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any

import grpc

from tests.fuzz.corpus import METHODS, SERVICES, Method
from tests.fuzz.mutation import mutated

_NICE = 10
_CALLS_AT_ONCE = 8
_CALL_SECONDS = 10.0  # no call of a port that lives hangs for so long
_MESSAGES_READ = 2  # then the caller leaves, as clients do
_FRAMES_A_STREAM = 25
# What gRPC's own client says, as INTERNAL, where the service ended the call while a frame was being written.
_WROTE_TOO_LATE = "Internal error from Core"


def frame_of(random: Random, method: Method) -> bytes:
    """Nine in ten are mutated; the others keep the state of the service in motion."""
    frame = random.choice(method.frames)
    if random.random() < 0.1:
        return frame
    changed = mutated(random, frame, method.kind, method.frames)
    # What is no message at all ends a stream in gRPC itself; most are to come further.
    while method.streams_requests and not method.is_message(changed) and random.random() < 0.95:
        changed = mutated(random, frame, method.kind, method.frames)
    return changed


def calls_of(random: Random, role: str, num_frames: int) -> list[tuple[Method, list[bytes]]]:
    """Calls that have `num_frames` frames together."""
    methods: Sequence[Method] = METHODS[role]
    # Weights are shares of the frames, and a stream has many.
    weights = [item.weight / (_FRAMES_A_STREAM if item.streams_requests else 1) for item in methods]
    calls = []
    while num_frames > 0:
        (method,) = random.choices(methods, weights)
        count = min(random.randrange(1, 2 * _FRAMES_A_STREAM), num_frames) if method.streams_requests else 1
        frames: list[bytes] = []
        while len(frames) < count and (not frames or method.is_message(frames[-1])):
            frames.append(frame_of(random, method))
        calls.append((method, frames))
        num_frames -= len(frames)
    return calls


async def send(channel: Any, role: str, calls: list[tuple[Method, list[bytes]]]) -> collections.Counter[str]:
    """Ends of the calls by "method status", or "method no message status" where a frame cannot be read at all.

    The status is LEFT where we left, and HANGS where a call did not end when it must.
    """
    ends: collections.Counter[str] = collections.Counter()
    waiting = iter(calls)

    async def work() -> None:
        for method, frames in waiting:
            what = method.name if all(map(method.is_message, frames)) else f"{method.name} no message"
            ends[f"{what} {await _call(channel, role, method, frames)}"] += 1

    await asyncio.gather(*(work() for _ in range(_CALLS_AT_ONCE)))
    return ends


async def _call(channel: Any, role: str, method: Method, frames: list[bytes]) -> str:
    path = f"/{SERVICES[role]}/{method.name}"

    async def requests() -> AsyncIterator[bytes]:
        for frame in frames:
            yield frame

    if method.streams_requests:
        call = channel.stream_stream(path)(requests(), timeout=_CALL_SECONDS)
    else:
        # As a stream of answers, also where there is one: on the wire they are the same.
        call = channel.unary_stream(path)(frames[0], timeout=_CALL_SECONDS)
    # A stream of frames is left once there is an answer to each, whether these belong together or not.
    most = len(frames) if method.streams_requests else _MESSAGES_READ
    try:
        async for _ in call:
            most -= 1
            if most == 0:
                call.cancel()
                return "LEFT"
        return str((await call.code()).name)
    except grpc.aio.AioRpcError as error:
        if error.details() == _WROTE_TOO_LATE:
            return "ENDED"
        return "HANGS" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else str(error.code().name)


async def main(role: str, address: str) -> None:
    """Until stdin ends."""
    os.nice(_NICE)
    loop = asyncio.get_running_loop()
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            seed, num_frames = map(int, line.split())
            ends = await send(channel, role, calls_of(Random(seed), role, num_frames))
            sys.stdout.write(json.dumps(ends) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
