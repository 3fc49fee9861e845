"""What goes to the speculator is cut to what it takes; what it leaves unread, or a slow network holds, is bounded."""

from __future__ import annotations

import asyncio
import threading
import time

import grpc

from saguaro.types import (
    NotSpeculatingReason,
    OpenSequence,
    SamplingParams,
    SequenceStatus,
    VerifierFrame,
)
from saguaro.v1 import speculator_pb2 as pb
from tests.unit.services.scripted_speculator import Heard, Peer, linked, port_of
from verifier_service.delay_line import DelayLine

SMALLEST_LIMIT = 65_536  # max_message_bytes of a service can be no less


def opened(sequence_id: int, num_tokens: int, epoch: int = 1) -> OpenSequence:
    return OpenSequence(sequence_id, epoch, 0, (40_000,) * num_tokens, SamplingParams(), num_tokens)


def statuses(heard: Heard) -> list[SequenceStatus]:
    return [status for frame in heard.frames for status in frame.statuses]


def test_many_long_prompts_reach_a_speculator_that_takes_short_messages_only() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer, max_message_bytes=SMALLEST_LIMIT) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.sends))
            heard.sends[-1](VerifierFrame(1, 4, 8, opens=tuple(opened(i, 15_000) for i in range(30))))
            await heard.until(lambda: sum(len(message.opens) for message in peer.received) == 30)
            assert not heard.reasons
            assert all(len(item.token_ids) == 15_000 for message in peer.received for item in message.opens)

    asyncio.run(scenario())


def test_a_prompt_that_is_too_long_for_the_speculator_costs_the_stream_once_and_then_itself_alone() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await context.write(pb.SpeculateResponse(free_kv_blocks=1).SerializeToString())
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer, max_message_bytes=SMALLEST_LIMIT) as address, linked(address) as heard:
            for attempt in (1, 2):
                await heard.until(lambda: len(heard.sends) == attempt)  # noqa: B023
                opens = tuple(opened(i, 100_000 if i == 2 else 10, epoch=attempt) for i in (1, 2, 3))
                heard.sends[-1](VerifierFrame(1, 4, 8, opens=opens))
                if attempt == 1:
                    await heard.until(lambda: bool(heard.reasons))
            await heard.until(lambda: any(item.sequence_id == 3 and item.epoch == 2 for item in sent(peer)))
            assert statuses(heard) == [SequenceStatus(2, 2, NotSpeculatingReason.CONTEXT_LIMIT)]
            heard.sends[-1](VerifierFrame(2, 4, 8, opens=(opened(4, 10),)))
            await heard.until(lambda: any(item.sequence_id == 4 for item in sent(peer)))
            assert len(heard.reasons) == 1

    asyncio.run(scenario())


def sent(peer: Peer) -> list[pb.OpenSequence]:
    return [item for message in peer.received for item in message.opens]


def test_a_token_that_the_contract_has_no_room_for_costs_its_sequence_alone() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.sends))
            broken = OpenSequence(2, 1, 0, (-1,), SamplingParams(), 1)
            heard.sends[-1](VerifierFrame(1, 4, 8, opens=(opened(1, 10), broken, opened(3, 10))))
            await heard.until(lambda: [item.sequence_id for item in sent(peer)] == [1, 3])
            assert statuses(heard) == [SequenceStatus(2, 1, NotSpeculatingReason.MALFORMED)]
            assert not heard.reasons

    asyncio.run(scenario())


def test_a_frame_that_cannot_be_sent_at_all_ends_the_stream_since_later_ones_build_on_it() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.sends))
            heard.sends[-1](VerifierFrame(-1, 4, 8, opens=(opened(1, 10),)))
            await heard.until(lambda: len(heard.sends) == 2)

    asyncio.run(scenario())


def test_a_speculator_that_does_not_read_is_given_up_by_bytes_too() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await asyncio.sleep(60)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address, reconnect_seconds=5) as heard:
            await heard.until(lambda: bool(heard.sends))
            frame = VerifierFrame(1, 4, 8, opens=tuple(opened(i, 5_000_000) for i in range(2)))
            for _ in range(4):
                heard.sends[-1](frame)
            await heard.until(lambda: bool(heard.reasons), seconds=60)
            assert "does not read" in heard.reasons[0]

    asyncio.run(scenario())


def delay_threads() -> int:
    return sum(thread.name == "delay-line" for thread in threading.enumerate())


def test_a_delayed_link_that_is_lost_delivers_nothing_more_and_ends_its_threads() -> None:
    async def scenario() -> None:
        delivered: list[int] = []
        with DelayLine(asyncio.get_running_loop(), 0.3) as line:
            for index in range(50):
                line.put(lambda index=index: delivered.append(index), 10)  # type: ignore[misc]
        deadline = time.monotonic() + 0.25
        while delay_threads():
            assert time.monotonic() < deadline, "the thread outlives its line"
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)
        assert not delivered

    asyncio.run(scenario())


def test_a_delayed_link_keeps_order_and_time() -> None:
    async def scenario() -> None:
        arrived: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
        with DelayLine(asyncio.get_running_loop(), 0.05) as line:
            put = []
            for index in range(20):
                put.append(time.monotonic())
                line.put(lambda index=index: arrived.put_nowait((index, time.monotonic())), 10)  # type: ignore[misc]
                await asyncio.sleep(0.002)
            came = [await asyncio.wait_for(arrived.get(), 10) for _ in put]
        assert [index for index, _ in came] == list(range(20))
        assert all(at - begun >= 0.05 for (_, at), begun in zip(came, put, strict=True))

    asyncio.run(scenario())


def test_a_delayed_link_takes_no_more_than_its_bound() -> None:
    async def scenario() -> None:
        with DelayLine(asyncio.get_running_loop(), 60, most_bytes=1 << 20) as line:
            taken = [line.put(lambda: None, 100_000) for _ in range(100)]
        assert taken[:10] == [True] * 10
        assert not any(taken[12:])

    asyncio.run(scenario())
