"""Answers that go on for a while without their client, which comes back and reads from where it was cut off.

An item of a stream has a sequence number, from 1. A kept stream is read by a task of its own, into a buffer; each
client follows the buffer. When the last client has gone, the stream has `resume_seconds` until it is ended and
forgotten. It then goes on, to its end or until the buffer is full of what no client has read: nothing is ever lost
behind the last item that was handed out, and a client that comes back may have missed a buffer's length before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gateway.guard import current_principal
from saguaro.errors import InvalidRequest, RateLimited, StreamNotFound

Item = TypeVar("Item")

MAX_BUFFERED_ITEMS = 4096  # of one stream; an item is a round's tokens
MAX_BUFFERED_BYTES = 1 << 20  # of one stream
_BUSY_RETRY_SECONDS = 1.0  # nobody knows when an answer ends


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Item]):
    """An item and its place in its stream, from 1."""

    sequence_number: int
    item: Item


async def numbered(items: AsyncGenerator[Item]) -> AsyncGenerator[Numbered[Item]]:
    """A stream that nobody keeps, numbered all the same."""
    async with contextlib.aclosing(items):
        number = 0
        async for item in items:
            number += 1
            yield Numbered(number, item)


@dataclass(slots=True, eq=False)
class _Follower:
    num_read: int


@dataclass(slots=True, eq=False)
class _KeptStream(Generic[Item]):
    """`buffer` holds the items up to number `num_items`, `num_bytes` in all; `num_handed_out` is the last that any
    client has read. `owner` is the name of the key whose stream it is.
    """

    owner: str
    buffer: deque[tuple[Item, int]] = field(default_factory=deque)  # with the size of each
    num_bytes: int = 0
    num_items: int = 0
    num_handed_out: int = 0
    has_ended: bool = False
    error: Exception | None = None
    followers: set[_Follower] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    reading: asyncio.Task[None] | None = None
    forgetting: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """`resume_seconds` 0 keeps no stream. `max_streams` counts those that have ended too; `max_streams_per_key` is of
    each key, where there are keys. A buffer always holds one item, whatever its size.
    """

    resume_seconds: float
    max_streams: int
    max_buffered_items: int = MAX_BUFFERED_ITEMS
    max_buffered_bytes: int = MAX_BUFFERED_BYTES
    max_streams_per_key: int | None = None


class Streams(Generic[Item]):
    """The kept streams of one door, by the ids of their requests, which are the gateway's own."""

    def __init__(self, bounds: StreamBounds, size_of: Callable[[Item], int]) -> None:
        """`size_of`: the bytes of an item."""
        self._bounds = bounds
        self._size_of = size_of
        self._streams: dict[str, _KeptStream[Item]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def num_kept(self) -> int:
        """Streams that can be resumed now, those that have ended included."""
        return len(self._streams)

    def keep(self, request_id: str, items: AsyncGenerator[Item]) -> AsyncGenerator[Numbered[Item]]:
        """Begins to read `items`, and follows them.

        Raises InvalidRequest where no stream is kept, RateLimited where the key has as many running as it may keep.
        """
        self._check_keeps()
        assert request_id not in self._streams, "each request has an id of its own"
        self._make_room(current_principal().name)
        stream = self._streams[request_id] = _KeptStream[Item](current_principal().name)
        stream.reading = asyncio.create_task(self._read(stream, items))
        self._forget_later(request_id, stream)  # unless its client comes to read it
        return self._follow(request_id, stream, 0)

    def resume(self, request_id: str, after: int) -> AsyncGenerator[Numbered[Item]]:
        """The items after number `after`, as they come, then the stream's error if it has one.

        Raises StreamNotFound, or InvalidRequest for a number that is not reached or no longer kept.
        """
        stream = self._found(request_id)
        first = stream.num_items - len(stream.buffer)
        if not first <= after <= stream.num_items:
            raise InvalidRequest(
                "after_sequence_number",
                f"after_sequence_number is {after}; of this stream, events after number {first} are kept and "
                f"{stream.num_items} have come",
            )
        return self._follow(request_id, stream, after)

    async def cancel(self, request_id: str) -> None:
        """Ends the stream and forgets it. Raises StreamNotFound."""
        self._found(request_id)
        await self._forget(request_id, "it was cancelled")

    async def close(self) -> None:
        """Ends all."""
        for request_id in list(self._streams):
            self._forget(request_id, "the gateway is stopping")
        await asyncio.gather(*self._ending)

    def _check_keeps(self) -> None:
        if self._bounds.resume_seconds == 0:
            raise InvalidRequest(
                "resumable", "resumable is true, but this gateway keeps no streams: its setting resume_seconds is 0"
            )

    def _found(self, request_id: str) -> _KeptStream[Item]:
        stream = self._streams.get(request_id)
        if stream is None or stream.owner != current_principal().name:  # ids are the clients' choice: others may guess
            raise StreamNotFound(
                f'no stream of request "{request_id}" here; it was not resumable, is forgotten, or never was'
            )
        return stream

    def _make_room(self, owner: str) -> None:
        """Where as many are kept as may be, forgets one that has ended: of the same key, else of the one that has most.
        Those that run have a bound of their own.
        """
        kept = Counter(stream.owner for stream in self._streams.values())
        most = self._bounds.max_streams_per_key
        if owner and most is not None and kept[owner] >= most:
            if not self._forget_ended(owner):
                raise RateLimited(
                    f'key "{owner}" may have {most} resumable answers, and {kept[owner]} run; wait for the end of one, '
                    "or leave out resumable",
                    _BUSY_RETRY_SECONDS,
                )
        elif len(self._streams) >= self._bounds.max_streams:
            any(self._forget_ended(other) for other in (owner, *(name for name, _ in kept.most_common())))

    def _forget_ended(self, owner: str) -> bool:
        """Whether a stream of the owner had ended; the oldest is forgotten."""
        ended = next((key for key, item in self._streams.items() if item.owner == owner and item.has_ended), None)
        if ended is not None:
            self._forget(ended, "others took its place")
        return ended is not None

    # --- the stream's side --------------------------------------------------------------------------------------------

    async def _read(self, stream: _KeptStream[Item], items: AsyncGenerator[Item]) -> None:
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    await self._append(stream, item)
        except Exception as error:  # noqa: BLE001  # it belongs to whoever follows
            stream.error = error
        finally:
            stream.has_ended = True
            await _tell(stream)

    async def _append(self, stream: _KeptStream[Item], item: Item) -> None:
        size = self._size_of(item)
        async with stream.changed:
            # A slow client slows its stream, as one that is not kept; an absent one stops it in the end.
            await stream.changed.wait_for(lambda: self._makes_room(stream, size))
            stream.buffer.append((item, size))
            stream.num_bytes += size
            stream.num_items += 1
            stream.changed.notify_all()

    def _makes_room(self, stream: _KeptStream[Item], size: int) -> bool:
        """Whether an item of that size fits, now that items went that nobody needs any more."""
        bounds, buffer = self._bounds, stream.buffer
        needed_from = min((follower.num_read for follower in stream.followers), default=stream.num_handed_out)
        while buffer and (
            len(buffer) >= bounds.max_buffered_items or stream.num_bytes + size > bounds.max_buffered_bytes
        ):
            if stream.num_items - len(buffer) >= needed_from:
                return False
            stream.num_bytes -= buffer.popleft()[1]
        return True

    # --- the client's side --------------------------------------------------------------------------------------------

    async def _follow(self, request_id: str, stream: _KeptStream[Item], after: int) -> AsyncGenerator[Numbered[Item]]:
        follower = _Follower(after)
        stream.followers.add(follower)
        if stream.forgetting is not None:
            stream.forgetting.cancel()
            stream.forgetting = None
        try:
            while True:
                async with stream.changed:
                    await stream.changed.wait_for(lambda: stream.num_items > follower.num_read or stream.has_ended)
                    if stream.num_items == follower.num_read:
                        break
                    item, _ = stream.buffer[follower.num_read - stream.num_items]
                    follower.num_read += 1
                    stream.num_handed_out = max(stream.num_handed_out, follower.num_read)
                    stream.changed.notify_all()
                yield Numbered(follower.num_read, item)
            if stream.error is not None:
                raise stream.error
        finally:
            stream.followers.discard(follower)
            if not stream.followers and self._streams.get(request_id) is stream:
                self._forget_later(request_id, stream)
            await _tell(stream)  # the source may have waited for this client

    # --- its end ------------------------------------------------------------------------------------------------------

    def _forget_later(self, request_id: str, stream: _KeptStream[Item]) -> None:
        stream.forgetting = asyncio.get_running_loop().call_later(
            self._bounds.resume_seconds, self._forget, request_id, "nobody came back for it in time"
        )

    def _forget(self, request_id: str, because: str) -> asyncio.Task[None]:
        """The id is free at once; the task ends when the stream's source has ended. Who still follows is told why."""
        stream = self._streams.pop(request_id)
        if stream.forgetting is not None:
            stream.forgetting.cancel()
        if not stream.has_ended:
            stream.error = StreamNotFound(f'the stream of request "{request_id}" was ended: {because}')
        ending = asyncio.create_task(_end(stream))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending


async def _end(stream: _KeptStream[Item]) -> None:
    assert stream.reading is not None
    stream.reading.cancel()
    await asyncio.gather(stream.reading, return_exceptions=True)


async def _tell(stream: _KeptStream[Item]) -> None:
    async with stream.changed:
        stream.changed.notify_all()
