"""Kept streams: read on without a client, followed from any item, bounded, ended in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from gateway.streams import Numbered, StreamBounds, Streams, numbered
from saguaro.errors import InvalidRequest, StreamNotFound, Unavailable

NUM_ITEMS = 8
LONG = StreamBounds(resume_seconds=60, max_streams=4)


def size_of(item: int) -> int:
    return 10


@dataclass
class Source:
    """Counts to NUM_ITEMS, or further; `gate` holds it after an item until it is told to go on."""

    length: int = NUM_ITEMS
    gate_after: int | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    num_given: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def items(self) -> AsyncGenerator[int]:
        try:
            for item in range(1, self.length + 1):
                yield item
                self.num_given = item
                if item == self.gate_after:
                    await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.ended.set()


async def read(stream: AsyncGenerator[Numbered[int]], most: int = 1000) -> list[int]:
    """Items up to `most`, then the client goes; numbers are checked to be those of the items."""
    items: list[int] = []
    async with contextlib.aclosing(stream):
        while len(items) < most:
            event = await anext(stream, None)
            if event is None:
                break
            assert event.sequence_number == event.item
            items.append(event.item)
    return items


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(limited())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # nobody would set an event
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("first", range(NUM_ITEMS + 1))
def test_a_client_cut_off_after_any_two_items_reads_each_once(first: int) -> None:
    async def scenario() -> None:
        for second in range(NUM_ITEMS + 1 - first):
            streams = Streams[int](LONG, size_of)
            parts = [await read(streams.keep("r", Source().items()), first)]
            parts.append(await read(streams.resume("r", first), second))
            parts.append(await read(streams.resume("r", first + second)))
            assert [item for part in parts for item in part] == [*range(1, NUM_ITEMS + 1)]
            await streams.close()

    run(scenario)


def test_the_stream_goes_on_without_its_client() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](LONG, size_of), Source()
        await read(streams.keep("r", source.items()), 1)
        await source.ended.wait()
        assert source.num_given == NUM_ITEMS
        assert await read(streams.resume("r", 1)) == [*range(2, NUM_ITEMS + 1)]
        await streams.close()

    run(scenario)


def test_a_client_that_came_back_waits_for_what_is_still_to_come() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](LONG, size_of), Source(gate_after=3)
        await read(streams.keep("r", source.items()), 2)
        rest = asyncio.create_task(read(streams.resume("r", 2)))
        await until(lambda: source.num_given == 3)
        source.gate.set()
        assert await rest == [*range(3, NUM_ITEMS + 1)]
        await streams.close()

    run(scenario)


def test_the_stream_s_error_comes_after_its_items_each_time() -> None:
    async def scenario() -> None:
        streams = Streams[int](LONG, size_of)
        stream = streams.keep("r", Source(error=Unavailable("queue full", 7.0)).items())
        for first in (1, 4):
            for number in range(first, NUM_ITEMS + 1):
                assert (await anext(stream)).item == number
            with pytest.raises(Unavailable, match="queue full"):
                await anext(stream)
            stream = streams.resume("r", 3)
        await streams.close()

    run(scenario)


@pytest.mark.parametrize("reads", [0, 1])
def test_a_stream_whose_client_stays_away_is_ended_and_forgotten(reads: int) -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(resume_seconds=0.02, max_streams=4), size_of)
        source = Source(gate_after=2)
        stream = streams.keep("r", source.items())
        await asyncio.sleep(0)  # the stream has begun
        await read(stream, reads)
        await source.ended.wait()
        await until(lambda: streams.num_kept == 0)
        assert source.num_given <= 2
        with pytest.raises(StreamNotFound, match='no stream of request "r"'):
            streams.resume("r", 0)

    run(scenario)


def test_a_stream_that_has_ended_is_kept_for_as_long() -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(resume_seconds=0.02, max_streams=4), size_of)
        assert len(await read(streams.keep("r", Source().items()))) == NUM_ITEMS
        assert streams.num_kept == 1
        await until(lambda: streams.num_kept == 0)

    run(scenario)


def test_a_client_that_is_there_keeps_its_stream_however_long_it_waits() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](StreamBounds(resume_seconds=0.01, max_streams=4), size_of), Source(gate_after=2)
        following = asyncio.create_task(read(streams.keep("r", source.items())))
        await asyncio.sleep(0.1)  # ten times as long as it may be away
        source.gate.set()
        assert await following == [*range(1, NUM_ITEMS + 1)]
        await streams.close()

    run(scenario)


def test_a_cancelled_stream_ends_its_source_and_tells_who_follows_it() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](LONG, size_of), Source(gate_after=2)
        following = asyncio.create_task(read(streams.keep("r", source.items())))
        await until(lambda: source.num_given == 2)
        await streams.cancel("r")
        assert source.ended.is_set()
        with pytest.raises(StreamNotFound, match="was cancelled"):
            await following
        with pytest.raises(StreamNotFound):
            await streams.cancel("r")

    run(scenario)


def test_closing_ends_all_and_says_so() -> None:
    async def scenario() -> None:
        streams, sources = Streams[int](LONG, size_of), [Source(gate_after=1), Source(gate_after=1)]
        following = asyncio.create_task(read(streams.keep("a", sources[0].items())))
        await read(streams.keep("b", sources[1].items()), 1)
        await until(lambda: sources[0].num_given == 1)
        await streams.close()
        assert all(source.ended.is_set() for source in sources)
        with pytest.raises(StreamNotFound, match="the gateway is stopping"):
            await following

    run(scenario)


def test_without_a_client_the_source_stops_at_a_full_buffer_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](StreamBounds(60, 4, max_buffered_items=5), size_of), Source(length=100)
        assert await read(streams.keep("r", source.items()), 3) == [1, 2, 3]
        # Items 1 to 3 may go; 4 to 8 fill the buffer, and the source waits with the next.
        await until(lambda: source.num_given == 8)
        for _ in range(20):
            await asyncio.sleep(0)
        assert source.num_given == 8
        assert await read(streams.resume("r", 3)) == [*range(4, 101)]
        await streams.close()

    run(scenario)


def test_a_slow_client_slows_the_source() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](StreamBounds(60, 4, max_buffered_items=5), size_of), Source(length=100)
        async with contextlib.aclosing(streams.keep("r", source.items())) as stream:
            async for event in stream:
                await asyncio.sleep(0)
                assert source.num_given <= event.item + 6
        await streams.close()

    run(scenario)


def test_of_two_clients_of_a_stream_a_slow_one_that_goes_no_longer_holds_up_the_other() -> None:
    async def scenario() -> None:
        streams, source = Streams[int](StreamBounds(60, 4, max_buffered_items=5), size_of), Source(length=100)
        slow = streams.keep("r", source.items())
        await anext(slow)
        fast = asyncio.create_task(read(streams.resume("r", 1)))
        await until(lambda: source.num_given == 6)
        assert not fast.done()
        await slow.aclose()
        assert await fast == [*range(2, 101)]
        await streams.close()

    run(scenario)


@pytest.mark.parametrize(("after", "kept_from"), [(94, 95), (101, 95)])
def test_items_that_are_not_there_are_refused_with_those_that_are(after: int, kept_from: int) -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(60, 4, max_buffered_items=5), size_of)
        await read(streams.keep("r", Source(length=100).items()))
        with pytest.raises(InvalidRequest, match=f"is {after}; .* after number {kept_from} are kept and 100 "):
            streams.resume("r", after)
        assert await read(streams.resume("r", 95)) == [96, 97, 98, 99, 100]
        assert await read(streams.resume("r", 100)) == []
        await streams.close()

    run(scenario)


def test_where_as_many_are_kept_as_may_be_one_that_has_ended_gives_way() -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(60, max_streams=2), size_of)
        running = Source(gate_after=1)
        await read(streams.keep("running", running.items()), 1)
        for name in ("first", "second", "third"):
            await read(streams.keep(name, Source().items()))
        assert streams.num_kept == 2
        streams.resume("running", 0)
        streams.resume("third", 0)
        await streams.close()

    run(scenario)


def test_a_gateway_that_keeps_none_says_which_setting_would() -> None:
    streams = Streams[int](StreamBounds(0, 4), size_of)
    with pytest.raises(InvalidRequest, match="its setting resume_seconds is 0"):
        streams.keep("r", Source().items())


def test_a_stream_that_is_not_kept_is_numbered_and_ends_with_its_client() -> None:
    async def scenario() -> None:
        source = Source(gate_after=2)
        assert await read(numbered(source.items()), 2) == [1, 2]
        assert source.ended.is_set()

    run(scenario)
