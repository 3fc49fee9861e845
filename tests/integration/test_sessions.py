"""Sessions and resumed streams through real services: the second turn is warm, and a break changes no token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saguaro.answers import ChatMessage
from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.v1 import gateway_pb2 as pb
from tests.integration.prompts import PROMPTS
from tests.integration.reference import first_divergence
from tests.unit.gateway.session_door import Door, door_at

BLOCK_SIZE = 16
MOST_SHARE_OF_COLD = 0.25
QUESTIONS = "\n".join(PROMPTS[:12]) + "\n"
SYSTEM = ChatMessage("system", "You are brief.")


@pytest.fixture(scope="module")
def trio(emulated_trio: Trio) -> Trio:
    return emulated_trio


async def two_turns(door: Door, first: str, second: str, **options: Any) -> tuple[Answer, Answer]:
    session = await door.create(SYSTEM)
    answers = [await door.turn(session.session_id, said, **options) for said in (first, second)]
    after = await door.get(session.session_id)
    assert (after.num_turns, after.prefix_reused) == (2, True)
    return answers[0], answers[1]


def assert_warm(cold: Answer, warm: Answer) -> None:
    """The second turn computed what is new and the block that it begins in, in a quarter of the time to first token."""
    kept = len(cold.prompt_token_ids) + len(cold.token_ids)
    assert warm.prompt_token_ids[:kept] == cold.prompt_token_ids + cold.token_ids
    assert warm.num_cached_prompt_tokens == (kept - 1) // BLOCK_SIZE * BLOCK_SIZE
    share = warm.ttft_seconds / cold.ttft_seconds
    print(
        f"cold {cold.num_prompt_tokens} tokens: TTFT {1000 * cold.ttft_seconds:.0f} ms; second turn "
        f"{warm.num_prompt_tokens} tokens, {warm.num_cached_prompt_tokens} cached: {1000 * warm.ttft_seconds:.0f} ms, "
        f"{share:.3f} of cold"
    )
    assert share <= MOST_SHARE_OF_COLD


def test_the_second_turn_of_a_1500_token_session_has_its_first_token_in_a_quarter_of_the_cold_time(trio: Trio) -> None:
    async def scenario() -> None:
        async with door_at(trio.gateway_address) as door:
            # A token a byte. What emulated models say no tokenizer would make of its text again.
            cold, warm = await two_turns(door, "cactus " * 210, "Why?", max_tokens=20)
            assert cold.num_prompt_tokens >= 1500
            assert cold.num_cached_prompt_tokens == 0
            assert_warm(cold, warm)

    asyncio.run(scenario())


def test_a_turn_in_a_session_says_what_the_same_tokens_without_one_say(trio: Trio) -> None:
    async def scenario() -> Answer:
        async with door_at(trio.gateway_address) as door:
            return (await two_turns(door, "Tell me of deserts.", "And of rain?", max_tokens=20))[1]

    answer = asyncio.run(scenario())
    with Client(trio.gateway_address) as client:
        assert client.generate(answer.prompt_token_ids, max_tokens=20, seed=1).finish().token_ids == answer.token_ids


def test_a_stream_resumed_after_any_number_of_events_is_the_undisturbed_one(trio: Trio) -> None:
    with Client(trio.gateway_address) as client:
        undisturbed = client.generate("Tell", max_tokens=30, seed=1).finish()

    async def scenario() -> None:
        async with door_at(trio.gateway_address) as door:
            stub = door.stub
            for drop_at in range(6):
                request = pb.GenerateRequest(text="Tell", max_tokens=30, resumable=True, n=1)
                request.sampling.seed = 1
                call = stub.Generate(request)
                name = dict(await call.initial_metadata())["x-request-id"]
                events = [await call.read() for _ in range(drop_at + 1)]
                call.cancel()
                resume = pb.ResumeStreamRequest(request_id=name, after_sequence_number=drop_at + 1)
                events += [event.response async for event in stub.ResumeStream(resume)]
                assert [event.sequence_number for event in events] == [*range(1, len(events) + 1)]
                token_ids = tuple(token for event in events for token in event.delta.token_ids)
                assert token_ids == undisturbed.token_ids
                text = "".join(event.delta.text + event.finished.text for event in events)
                assert text == undisturbed.text

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_the_demo_pair_the_second_turn_is_warm_and_the_targets_own(demo_trio: Trio) -> None:
    async def scenario() -> tuple[Answer, Answer]:
        async with door_at(demo_trio.gateway_address) as door:
            with Client(demo_trio.gateway_address) as client:
                num_tokens = len(client.tokenize(QUESTIONS))
            questions = QUESTIONS * (1500 // num_tokens + 1)
            return await two_turns(door, questions, "Answer the first of them.", max_tokens=48)

    cold, warm = asyncio.run(scenario())
    assert cold.num_prompt_tokens >= 1500
    assert_warm(cold, warm)
    assert first_divergence(warm.prompt_token_ids, warm.token_ids) is None
