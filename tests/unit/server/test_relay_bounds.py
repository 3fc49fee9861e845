"""What is too large, or cannot be sent, or is not read, at the verifier's end of a relay: one pays, not all."""

from __future__ import annotations

import asyncio

import pytest

from saguaro.errors import InvalidRequest, SequenceFault, Unavailable
from saguaro.types import (
    FinishReason,
    GenerationFinished,
    LookupResult,
    PromptLogprobs,
    RoundReport,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
)
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.verifier import event_from_proto
from tests.unit.server.test_relay import STARTED, Caller, run_of, scene, until

LIMIT = 2000


def test_logprobs_of_a_long_prompt_come_in_messages_below_the_limit() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        caller.generate(2, "b")
        await caller.next()
        whole = PromptLogprobs(tuple(TokenLogprobs(-float(index), ((index, -0.5),) * 20) for index in range(100)))
        caller.loop.sinks["a"](whole)
        caller.loop.sinks["b"](run_of(2))
        found: list[TokenLogprobs] = []
        num_messages = 0
        while len(found) < 100:
            message = await asyncio.wait_for(anext(caller.messages), 5)
            assert message.ByteSize() <= LIMIT
            num_messages += 1
            for item in message.events:
                event = event_from_proto(item.event)
                if isinstance(event, PromptLogprobs):
                    assert item.generation_id == 1
                    found += event.logprobs
                else:
                    assert (item.generation_id, event) == (2, run_of(2))
        assert tuple(found) == whole.logprobs
        assert num_messages > 2

    scene(play)


def test_an_end_with_more_rounds_than_fit_comes_without_them() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        await caller.next()
        rounds = tuple(RoundReport(index, 4, 4, LookupResult.HIT, 10**6, 10**7, 10**6, 10**5) for index in range(200))
        report = SpeculationReport(True, "", 200, 800, 800, 200, 0, 0, rounds)
        caller.loop.sinks["a"](GenerationFinished(FinishReason.STOP, 1, 1000, 0, report))
        ((_, end),) = await caller.next()
        assert isinstance(end, GenerationFinished)
        assert (end.num_generated_tokens, end.speculation.num_rounds, end.speculation.rounds) == (1000, 200, ())

    scene(play)


def test_what_has_no_parts_ends_its_generation_with_size_and_limit() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        caller.generate(2, "b")
        await caller.next()
        caller.loop.sinks["a"](TokenRun((70000,) * 1000, (TokenProvenance.PLAIN,) * 1000))
        caller.loop.sinks["b"](run_of(2))
        (number, error), other = await caller.next()
        assert number == 1
        assert isinstance(error, InvalidRequest)
        assert "bytes; a message takes 1992 (--max-message-bytes)" in str(error)
        assert other == (2, run_of(2))
        assert caller.loop.aborted == ["a"]

    scene(play)


def test_an_event_that_cannot_be_written_and_a_reason_that_has_no_room_end_theirs_alone() -> None:
    async def play(caller: Caller) -> None:
        for number, name in enumerate("abc", start=1):
            caller.generate(number, name)
        await caller.next()
        caller.loop.sinks["a"](run_of(-1))  # the contract has no such token; whoever hands it out goes on
        caller.loop.sinks["b"](InvalidRequest("grammar", "x" * 5000))
        caller.loop.sinks["c"](run_of(3))
        (first, fault), (second, refusal), other = await caller.next()
        assert (first, second) == (1, 2)
        assert isinstance(fault, SequenceFault)
        assert isinstance(refusal, InvalidRequest)
        assert "no message has room" in str(refusal)
        assert other == (3, run_of(3))

    scene(play)


def test_a_command_that_is_none_is_answered_and_the_others_go_on() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        assert await caller.next() == [(1, STARTED)]
        caller.send(generation_id=2)
        ((number, error),) = await caller.next()
        assert number == 2
        assert isinstance(error, InvalidRequest)

    scene(play)


def test_a_caller_that_does_not_read_loses_its_generations_and_not_the_memory() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        await caller.next()
        for _ in range(5000):
            caller.loop.sinks["a"](run_of(1))
        assert caller.loop.aborted == ["a"]
        with pytest.raises(Unavailable, match="bytes unread"):
            await caller.next()

    scene(play)


def test_commands_that_cannot_be_read_end_the_stream_and_what_ran_there() -> None:
    async def play(caller: Caller) -> None:
        caller.generate(1, "a")
        await caller.next()
        caller._commands.put_nowait(object())  # type: ignore[arg-type]
        with pytest.raises(AttributeError):
            await caller.next()
        await until(lambda: caller.loop.aborted == ["a"])

    scene(play)
    assert pb.RelayRequest().WhichOneof("command") is None
