"""What one client can make the gateway keep of resumable answers: bytes of each, and a number for each key."""

from __future__ import annotations

import pytest

from gateway.guard import Guard
from gateway.streams import StreamBounds, Streams
from saguaro.errors import RateLimited, StreamNotFound
from saguaro.keys import KeyRecord, hash_of
from tests.unit.gateway.test_streams import Source, read, run, size_of, until

GUARD = Guard([KeyRecord(name=name, sha256=hash_of(name)) for name in ("ann", "bob")])


def enter(name: str) -> None:
    GUARD.enter(f"Bearer {name}")


def test_without_a_client_the_source_stops_at_a_buffer_that_is_full_in_bytes() -> None:
    async def scenario() -> None:
        bounds = StreamBounds(60, 4, max_buffered_bytes=5 * size_of(1))
        streams, source = Streams[int](bounds, size_of), Source(length=100)
        assert await read(streams.keep("r", source.items()), 3) == [1, 2, 3]
        await until(lambda: source.num_given == 8)
        assert await read(streams.resume("r", 3)) == [*range(4, 101)]
        await streams.close()

    run(scenario)


def test_items_of_which_each_is_larger_than_the_buffer_pass_one_by_one() -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(60, 4, max_buffered_bytes=1), size_of)
        assert await read(streams.keep("r", Source(length=20).items())) == [*range(1, 21)]
        await streams.close()

    run(scenario)


def test_a_key_s_oldest_ended_stream_goes_first_and_no_other_key_s() -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(60, max_streams=10, max_streams_per_key=2), size_of)
        enter("ann")
        await read(streams.keep("ann's", Source().items()))
        enter("bob")
        for name in ("first", "second", "third", "fourth"):
            await read(streams.keep(name, Source().items()))
        assert streams.num_kept == 3
        for name in ("first", "second"):
            with pytest.raises(StreamNotFound):
                streams.resume(name, 0)
        assert len(await read(streams.resume("fourth", 0))) == 8
        enter("ann")
        assert len(await read(streams.resume("ann's", 0))) == 8
        await streams.close()

    run(scenario)


def test_where_all_are_kept_that_may_be_the_key_with_the_most_gives_way() -> None:
    async def scenario() -> None:
        streams = Streams[int](StreamBounds(60, max_streams=4), size_of)
        enter("ann")
        await read(streams.keep("ann's", Source().items()))
        enter("bob")
        for number in range(8):
            await read(streams.keep(f"bob's {number}", Source().items()))
        assert streams.num_kept == 4
        enter("ann")
        assert len(await read(streams.resume("ann's", 0))) == 8
        await streams.close()

    run(scenario)


def test_a_key_whose_running_streams_are_as_many_as_it_may_have_is_told_to_wait() -> None:
    async def scenario() -> None:
        streams, held = Streams[int](StreamBounds(60, 10, max_streams_per_key=1), size_of), Source(gate_after=1)
        enter("ann")
        await read(streams.keep("held", held.items()), 1)
        with pytest.raises(RateLimited, match='key "ann" may have 1 resumable answers, and 1 run'):
            streams.keep("more", Source().items())
        enter("bob")
        await read(streams.keep("bob's", Source().items()))
        await streams.close()

    run(scenario)
