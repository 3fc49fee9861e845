"""Many requests share a stream to a verifier; what one of them does wrong is told to that one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from saguaro.answers import AnswerRequest, TokenPrompt
from saguaro.client.answer import Answer
from saguaro.errors import InvalidRequest, SaguaroError, SequenceFault
from saguaro.types import TokenLogprobs
from saguaro.v1 import verifier_pb2 as pb
from tests.unit.gateway.faulty_verifier import FaultyVerifier
from tests.unit.gateway.house import FakeVerifier
from tests.unit.gateway.several_verifiers import ANSWER, Verifiers, request, running_verifiers

SMALL = 1 << 16
LONG_PROMPT = tuple(index % 100 + 5 for index in range(12_000))


async def all_answers(verifiers: Verifiers, **requests: AnswerRequest) -> dict[str, Answer | SaguaroError]:
    """Side by side, by their ids: the answer, or what came instead."""

    async def one(name: str, asked: AnswerRequest) -> Answer | SaguaroError:
        try:
            (answer,) = await verifiers.answer(asked, name)
        except SaguaroError as error:
            return error
        return answer

    found = await asyncio.gather(*(one(name, asked) for name, asked in requests.items()))
    return dict(zip(requests, found, strict=True))


def assert_is_whole(answer: Answer | SaguaroError) -> None:
    assert isinstance(answer, Answer), repr(answer)
    assert answer.text == ANSWER


@pytest.mark.parametrize(("at_the_verifier", "at_the_gateway"), [(SMALL, 1 << 20), (1 << 20, SMALL)])
def test_logprobs_of_a_prompt_that_no_message_holds_arrive_whole_and_hurt_nobody(
    text_folder: Path, at_the_verifier: int, at_the_gateway: int
) -> None:
    async def scenario() -> None:
        options: dict[str, object] = {"context_limit": 20_000, "max_message_bytes": at_the_verifier}
        async with running_verifiers(text_folder, options, max_message_bytes=at_the_gateway) as verifiers:
            prompt = TokenPrompt(LONG_PROMPT)
            long = AnswerRequest(prompt, prompt_logprobs=True, max_tokens=4)
            found = await all_answers(verifiers, a=request(), long=long, b=request())
            assert_is_whole(found["a"])
            assert_is_whole(found["b"])
            answer = found["long"]
            assert isinstance(answer, Answer), repr(answer)
            assert answer.prompt_logprobs == tuple(TokenLogprobs(-float(token)) for token in LONG_PROMPT[1:])
            assert len(verifiers.fakes[0].requests) == 3  # nothing was tried again

    asyncio.run(scenario())


def test_a_request_that_is_too_large_for_the_verifier_is_refused_with_size_and_limit(text_folder: Path) -> None:
    async def scenario() -> None:
        options: dict[str, object] = {"context_limit": 1 << 20, "max_message_bytes": SMALL}
        async with running_verifiers(text_folder, options) as verifiers:
            long = AnswerRequest(TokenPrompt(LONG_PROMPT * 10), max_tokens=4)
            found = await all_answers(verifiers, a=request(), long=long, b=request())
            assert_is_whole(found["a"])
            assert_is_whole(found["b"])
            assert isinstance(found["long"], InvalidRequest)
            assert f"a message takes {SMALL} (--max-message-bytes)" in str(found["long"])

    asyncio.run(scenario())


@pytest.mark.parametrize("poison", ["odd", "garbled", "poison"])
def test_what_cannot_be_read_is_the_fault_of_one_request_and_the_others_get_their_answers(
    text_folder: Path, poison: str
) -> None:
    async def scenario() -> None:
        options: list[dict[str, object]] = [{"kind": FaultyVerifier}, {"kind": FaultyVerifier}]
        async with running_verifiers(text_folder, *options) as verifiers:
            names = [*(f"r{index}" for index in range(10)), poison]
            found = await all_answers(verifiers, **dict.fromkeys(names, request()))
            for name in names[:-1]:
                assert_is_whole(found[name])
            assert isinstance(found[poison], SequenceFault)  # ours, not the client's
            tries = [item for fake in verifiers.fakes for item in fake.requests if item.request_id.startswith(poison)]
            assert len(tries) == 2
            assert len(verifiers.pool.usable) == 2
            assert verifiers.pool.complaints == ""

    asyncio.run(scenario())


def test_an_only_verifier_whose_stream_breaks_goes_on_with_those_that_did_not_break_it(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {"kind": FaultyVerifier}) as verifiers:
            names = ["a", "b", "garbled", "c"]
            found = await all_answers(verifiers, **dict.fromkeys(names, request()))
            for name in "abc":
                assert_is_whole(found[name])
            assert isinstance(found["garbled"], SequenceFault)

    asyncio.run(scenario())


class Unread(FakeVerifier):
    """Takes calls, and reads nothing of what comes on them."""

    async def Relay(self, commands: Any, context: Any) -> AsyncIterator[Any]:
        await self.go_on.wait()
        yield pb.RelayResponse()


def test_what_a_verifier_does_not_read_is_bounded_and_what_comes_then_goes_elsewhere(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.verifiers.stream._MOST_WAITING_BYTES", 1 << 18)

    async def scenario() -> None:
        room: dict[str, object] = {"context_limit": 1 << 20}
        async with running_verifiers(text_folder, room | {"kind": Unread}, room | {"num_running": 1000}) as verifiers:
            await asyncio.sleep(0.6)  # the second has reported its load
            long = AnswerRequest(TokenPrompt(LONG_PROMPT * 16), max_tokens=4)
            tasks: list[asyncio.Task[tuple[Answer, ...]]] = []
            while not any(task.done() for task in tasks):
                assert len(tasks) < 60
                tasks.append(asyncio.create_task(verifiers.answer(long, f"r{len(tasks)}")))
                await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            (first,) = [task for task in tasks if task.done()]
            assert len(first.result()[0].token_ids) == 4
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
