"""A relay at the verifier's port: many generations, one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from saguaro.errors import InvalidRequest, SequenceFault, Unavailable
from saguaro.server import GenerationHandle, Relay
from saguaro.types import (
    AcceptanceMode,
    EventSink,
    FinishReason,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    PromptLogprobs,
    SamplingParams,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
)
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.status import error_of_packed
from saguaro.wire.verifier import event_from_proto, generation_request_to_proto

STARTED = GenerationStarted(7, AcceptanceMode.COUPLED)
END = GenerationFinished(FinishReason.STOP, 1, 1, 0, SpeculationReport(False))


def run_of(token: int) -> TokenRun:
    return TokenRun((token,), (TokenProvenance.PLAIN,))


@dataclass
class Loop:
    """Stands for the decode loop: what began, by request id, and what its caller told it."""

    sinks: dict[str, EventSink] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: Exception | None = None

    async def begin(self, request: GenerationRequest, sink: EventSink) -> GenerationHandle:
        name = request.request_id
        if name == "slow to begin":
            await self.hold.wait()
        if self.refusal is not None:
            raise self.refusal
        self.sinks[name] = sink
        sink(STARTED)
        return GenerationHandle(lambda: self.stopped.append(name), lambda: self.aborted.append(name))


class Caller:
    """The other end. `messages` come as the relay makes them."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.relay = Relay(loop.begin, max_message_bytes=2000, most_gathered_bytes=20_000)
        self._commands: asyncio.Queue[pb.RelayRequest | None] = asyncio.Queue()
        self.messages = self.relay.responses(self._sent())

    async def _sent(self) -> AsyncIterator[pb.RelayRequest]:
        while (command := await self._commands.get()) is not None:
            yield command

    def generate(self, number: int, name: str) -> None:
        request = generation_request_to_proto(GenerationRequest(name, (1,), SamplingParams()))
        self._commands.put_nowait(pb.RelayRequest(generation_id=number, generate=request))

    def send(self, **command: object) -> None:
        self._commands.put_nowait(pb.RelayRequest(**command))  # type: ignore[arg-type]

    def close(self) -> None:
        self._commands.put_nowait(None)

    async def next(self) -> list[tuple[int, object]]:
        """Of the next message, generation and event or error each."""
        message = await asyncio.wait_for(anext(self.messages), 5)
        return [(item.generation_id, _event_of(item)) for item in message.events]


def _event_of(item: pb.RelayedEvent) -> object:
    if item.HasField("failure"):
        return error_of_packed(item.failure, "the verifier")
    return event_from_proto(item.event)


def scene(play: Callable[[Caller], Awaitable[None]]) -> None:
    async def scenario() -> None:
        caller = Caller(Loop())
        await play(caller)
        await caller.messages.aclose()

    asyncio.run(scenario())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # what it looks at is no event
            await asyncio.sleep(0)


def test_what_all_generations_emit_in_one_step_is_one_message_in_order() -> None:
    async def play(caller: Caller) -> None:
        for number, name in enumerate("abc", start=1):
            caller.generate(number, name)
        assert await caller.next() == [(1, STARTED), (2, STARTED), (3, STARTED)]
        for token, name in enumerate("abc"):
            caller.loop.sinks[name](run_of(token))
        caller.loop.sinks["b"](END)
        assert await caller.next() == [(1, run_of(0)), (2, run_of(1)), (3, run_of(2)), (2, END)]

    scene(play)


def test_a_message_is_closed_before_grpc_would_refuse_it() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        caller.generate(2, "b")
        await caller.next()
        long = PromptLogprobs((TokenLogprobs(-1.0),) * 200)  # more bytes than make a message full
        caller.loop.sinks["a"](long)
        caller.loop.sinks["b"](long)
        assert await caller.next() == [(1, long)]
        assert await caller.next() == [(2, long)]

    scene(play)


@pytest.mark.parametrize("fault", [InvalidRequest("max_tokens", "max_tokens is 0"), Unavailable("full", 3.0)])
def test_a_refused_generation_says_why_and_the_others_go_on(fault: Exception) -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        await caller.next()
        caller.loop.refusal = fault
        caller.generate(2, "b")
        ((number, error),) = await caller.next()
        assert (number, type(error), str(error)) == (2, type(fault), str(fault))
        assert vars(error) == vars(fault)
        caller.loop.sinks["a"](END)
        assert await caller.next() == [(1, END)]

    scene(play)


def test_a_fault_in_the_midst_ends_its_generation_alone() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        caller.generate(2, "b")
        await caller.next()
        caller.loop.sinks["a"](SequenceFault("its grammar is stuck"))
        caller.loop.sinks["a"](run_of(1))  # too late
        caller.loop.sinks["b"](run_of(2))
        (_, error), *rest = await caller.next()
        assert isinstance(error, SequenceFault)
        assert rest == [(2, run_of(2))]

    scene(play)


def test_stop_and_cancel_reach_their_generation_even_before_it_has_begun() -> None:
    async def play(caller: Caller) -> None:
        loop = caller.loop
        caller.generate(1, "a")
        await caller.next()
        caller.send(generation_id=1, stop=pb.StopGeneration())
        caller.send(generation_id=9, stop=pb.StopGeneration())  # unknown: fine
        await until(lambda: bool(loop.stopped))
        caller.send(generation_id=1, cancel=pb.CancelGeneration())
        await until(lambda: bool(loop.aborted))
        loop.sinks["a"](run_of(1))  # nobody hears it
        caller.generate(2, "slow to begin")
        caller.send(generation_id=2, stop=pb.StopGeneration())
        await asyncio.sleep(0.01)
        loop.hold.set()
        assert await caller.next() == [(2, STARTED)]
        assert (loop.stopped, loop.aborted) == (["a", "slow to begin"], ["a"])

    scene(play)


def test_a_caller_that_goes_away_aborts_all_and_one_that_closes_its_side_hears_the_ends() -> None:
    async def play(caller: Caller) -> None:
        for number, name in enumerate("ab", start=1):
            caller.generate(number, name)
        await caller.next()
        caller.close()
        caller.loop.sinks["a"](END)
        assert await caller.next() == [(1, END)]
        assert caller.loop.aborted == ["a"]  # it had ended; harmless
        await caller.messages.aclose()
        assert caller.loop.aborted == ["a", "b"]

    scene(play)


def test_a_drain_refuses_what_is_new_and_ends_the_stream_with_the_last_generation() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        await caller.next()
        caller.relay.drain("the verifier is draining")
        caller.generate(2, "b")
        ((number, error),) = await caller.next()
        assert number == 2
        assert isinstance(error, Unavailable)
        assert "draining" in str(error)
        caller.loop.sinks["a"](END)
        assert await caller.next() == [(1, END)]
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(caller.messages), 5)

    scene(play)


def test_a_number_that_is_given_twice_ends_with_both_and_the_others_go_on() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(4, "a")
        caller.generate(5, "c")
        await caller.next()
        caller.generate(4, "b")
        ((number, error),) = await caller.next()
        assert number == 4
        assert isinstance(error, InvalidRequest)
        assert "generation_id is 4, the number of one that runs" in str(error)
        assert "a" in caller.loop.aborted
        caller.loop.sinks["c"](run_of(7))
        assert await caller.next() == [(5, run_of(7))]

    scene(play)
