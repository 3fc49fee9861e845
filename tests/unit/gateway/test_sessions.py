"""Sessions through real gateways on real sockets; the verifier is faked."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from gateway.sessions import StoreLimits
from saguaro.answers import ChatMessage, ChatPrompt, Prompt, TextPrompt
from saguaro.errors import (
    InvalidRequest,
    ModelNotFound,
    SequenceFault,
    SessionBusy,
    SessionNotFound,
    Unavailable,
)
from saguaro.types import SamplingParams
from tests.unit.gateway.session_door import ANSWER, open_door

SYSTEM = ChatMessage("system", "Be brief.")


def test_a_turn_s_prompt_is_what_the_verifier_saw_and_emitted_before_and_then_the_new_message(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create(SYSTEM)
            assert (session.messages, session.num_turns, session.num_tokens) == ((SYSTEM,), 0, 0)
            assert session.expires_at > session.created_at
            kept: tuple[int, ...] = ()
            for index, question in enumerate(("Tell", "größer?", "🌵")):
                answer = await door.turn(session.session_id, question)
                assert answer.text == ANSWER
                prompt = house.verifier.requests[index].prompt
                assert prompt[: len(kept)] == kept
                rest = f"\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
                assert not kept or prompt[len(kept) :] == house.text.encode(rest)
                kept = prompt + house.verifier.answer
            first = house.text.render([SYSTEM, ChatMessage("user", "Tell")])
            assert house.verifier.requests[0].prompt == house.text.encode_rendered(first)
            after = await door.get(session.session_id)
            assert (after.num_turns, after.num_tokens, after.prefix_reused) == (3, len(kept), True)
            assert [message.role for message in after.messages] == ["system"] + ["user", "assistant"] * 3
            assert after.messages[2].content == ANSWER
            assert not after.is_busy

    asyncio.run(scenario())


def test_the_system_prompt_may_come_with_the_first_turn_and_a_turn_may_bring_several_messages(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create()
            await door.turn(session.session_id, ChatPrompt((SYSTEM, ChatMessage("user", "Tell"))))
            whole = house.text.render([SYSTEM, ChatMessage("user", "Tell")])
            assert house.verifier.requests[0].prompt == house.text.encode_rendered(whole)
            assert (await door.get(session.session_id)).prefix_reused is None

    asyncio.run(scenario())


def test_a_stop_string_s_tokens_do_not_stay_in_the_history(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create()
            assert (await door.turn(session.session_id, "Tell", stop=(" 🌵",))).text == "The saguaro"
            await door.turn(session.session_id, "More")
            said = b"".join(map(house.text.token_bytes, house.verifier.requests[1].prompt)).decode()
            assert "assistant\nThe saguaro<|im_end|>\n<|im_start|>user\nMore" in said
            assert (await door.get(session.session_id)).prefix_reused

    asyncio.run(scenario())


def test_a_turn_that_failed_leaves_no_trace_and_can_be_sent_again(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create()
            await door.turn(session.session_id, "Tell")
            before = await door.get(session.session_id)
            for num_runs in (0, 1):
                house.verifier.error, house.verifier.error_after_runs = Unavailable("queue full"), num_runs
                with pytest.raises(Unavailable, match="queue full"):
                    await door.turn(session.session_id, "More")
                after = await door.get(session.session_id)
                assert (after.messages, after.num_tokens) == (before.messages, before.num_tokens)
            house.verifier.error = None
            await door.turn(session.session_id, "More")
            assert (await door.get(session.session_id)).num_turns == 2

    asyncio.run(scenario())


def test_a_turn_whose_client_goes_leaves_no_trace_and_the_session_is_free_again(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder, hang_after_runs=1) as (house, door):
            session = await door.create()
            call = door.call(session.session_id, "Tell")
            await anext(aiter(call))
            assert (await door.get(session.session_id)).is_busy
            call.cancel()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            async with asyncio.timeout(10):
                while (await door.get(session.session_id)).is_busy:  # noqa: ASYNC110  # nobody would set an event
                    await asyncio.sleep(0.01)
            assert (await door.get(session.session_id)).num_turns == 0
            house.verifier.hang_after_runs = None
            await door.turn(session.session_id, "Tell")

    asyncio.run(scenario())


def test_unknown_deleted_and_expired_sessions_are_not_found(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder, session_limits=StoreLimits(0.05, 16)) as (house, door):
            gone = [(await door.create()).session_id, "never was"]
            with pytest.raises(ModelNotFound):
                await door.create(model="gpt")
            async with asyncio.timeout(10):
                for name in gone:
                    with contextlib.suppress(SessionNotFound):
                        while await door.get(name):  # noqa: ASYNC110
                            await asyncio.sleep(0.01)
            for name in gone:
                for asked in (door.get(name), door.delete(name), door.turn(name, "Tell")):
                    with pytest.raises(SessionNotFound, match=f'no session "{name}"'):
                        await asked
            assert not house.verifier.requests

    asyncio.run(scenario())


def test_a_session_that_is_deleted_during_a_turn_stays_deleted_and_the_turn_ends_with_an_error(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with open_door(text_folder, pause_after_runs=1) as (house, door):
            session = await door.create()
            turn = asyncio.create_task(door.turn(session.session_id, "Tell"))
            async with asyncio.timeout(10):
                while not house.verifier.num_runs:  # noqa: ASYNC110  # nobody would set an event
                    await asyncio.sleep(0.01)
            await door.delete(session.session_id)
            house.verifier.go_on.set()
            with pytest.raises(SessionNotFound, match="was deleted, or taken by another turn, while this turn ran"):
                await turn
            with pytest.raises(SessionNotFound):
                await door.get(session.session_id)

    asyncio.run(scenario())


def test_a_second_turn_of_a_busy_session_is_refused_also_at_another_gateway(
    text_folder: Path, shared_store: str
) -> None:
    async def scenario() -> None:
        async with (
            open_door(text_folder, session_store=shared_store, hang_after_runs=1) as (_, door),
            open_door(text_folder, session_store=shared_store) as (other_house, other),
        ):
            session = await door.create()
            call = door.call(session.session_id, "Tell")
            await anext(aiter(call))
            for gateway in (door, other):
                with pytest.raises(SessionBusy, match="has a turn running"):
                    await gateway.turn(session.session_id, "Me too")
            assert not other_house.verifier.requests
            call.cancel()
            async with asyncio.timeout(10):
                while (await other.get(session.session_id)).is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await other.turn(session.session_id, "Now me")

    asyncio.run(scenario())


def test_a_session_goes_on_at_another_gateway(text_folder: Path, shared_store: str) -> None:
    async def scenario() -> None:
        async with (
            open_door(text_folder, session_store=shared_store) as (house, door),
            open_door(text_folder, session_store=shared_store) as (other_house, other),
        ):
            session = await door.create(SYSTEM)
            await door.turn(session.session_id, "Tell")
            await other.turn(session.session_id, "More")
            before = house.verifier.requests[0].prompt + house.verifier.answer
            assert other_house.verifier.requests[0].prompt[: len(before)] == before
            assert await door.get(session.session_id) == await other.get(session.session_id)

    asyncio.run(scenario())


def test_a_lease_is_renewed_while_a_turn_runs(text_folder: Path) -> None:
    limits = StoreLimits(60, 16, lease_seconds=0.3)

    async def scenario() -> None:
        async with open_door(text_folder, session_limits=limits, hang_after_runs=1) as (_, door):
            session = await door.create()
            call = door.call(session.session_id, "Tell")
            await anext(aiter(call))
            ends = set()
            async with asyncio.timeout(10):
                while len(ends) < 4:  # each renewal moves the end on
                    ends.add((await door.get(session.session_id)).expires_at)
                    await asyncio.sleep(0.02)
            call.cancel()

    asyncio.run(scenario())


def test_what_a_session_cannot_take_is_refused_with_the_number_given_and_the_bound(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder, max_session_tokens=40) as (house, door):
            name = (await door.create()).session_id

            async def refused(message: str, prompt: Prompt | str, **options: Any) -> str:
                with pytest.raises(InvalidRequest, match=message) as caught:
                    await door.turn(name, prompt, **options)
                return caught.value.field

            assert await refused("n is 2 in a session", "Tell", n=2) == "n"
            assert await refused("its prompt is no chat", TextPrompt("Tell")) == "prompt"
            assert await refused("the turn has no messages", ChatPrompt(())) == "chat.messages"
            assert await refused("no robots", ChatPrompt((ChatMessage("robot", "beep"),))) == "chat.messages"
            sizes = r"the session has \d+ tokens; this gateway keeps sessions of up to 40"
            assert await refused(sizes, "x! " * 40) == "prompt"
            assert not house.verifier.requests
            with pytest.raises(InvalidRequest, match=r"the messages have \d+ tokens; .* sessions of up to 40"):
                await door.create(ChatMessage("system", "x! " * 40))
            answer = await door.turn(name, "Tell")
            room = 40 - answer.num_prompt_tokens
            assert house.verifier.requests[0].max_tokens == room
            await door.turn((await door.create()).session_id, "Tell", max_tokens=2)
            assert house.verifier.requests[1].max_tokens == 2

    asyncio.run(scenario())


def test_after_a_change_of_tokenizer_the_conversation_goes_on_tokenized_anew(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create()
            await door.turn(session.session_id, "Tell")
            house.verifier.fingerprint = "0" * 64
            verifiers = house.answers.verifiers
            verifiers.members[0].eject("it restarts")  # then the gateway asks anew who it is
            await verifiers.wait_until_usable(10)
            await door.turn(session.session_id, "More")
            after = await door.get(session.session_id)
            assert after.prefix_reused is False
            assert house.verifier.requests[-1].prompt == house.text.encode_rendered(
                house.text.render(after.messages[:-1])
            )

    asyncio.run(scenario())


def test_a_broken_turn_is_our_fault_and_not_kept(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder, error=SequenceFault("broken"), error_after_runs=1) as (_, door):
            session = await door.create()
            with pytest.raises(SequenceFault):
                await door.turn(session.session_id, "Tell")
            assert (await door.get(session.session_id)).num_turns == 0

    asyncio.run(scenario())


def test_a_request_with_a_session_and_parameters_reaches_the_verifier_as_any_other(text_folder: Path) -> None:
    async def scenario() -> None:
        async with open_door(text_folder) as (house, door):
            session = await door.create()
            sampling = SamplingParams(temperature=0.5, top_k=7)
            await door.turn(session.session_id, "Tell", sampling=sampling, logprobs=True, max_tokens=5)
            (asked,) = house.verifier.requests
            assert (asked.sampling.temperature, asked.sampling.top_k, asked.sampling.seed) == (0.5, 7, 1)
            assert (asked.logprobs, asked.max_tokens) == (True, 5)

    asyncio.run(scenario())
