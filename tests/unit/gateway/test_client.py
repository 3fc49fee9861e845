"""Both clients against a real gateway, and what they refuse by themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saguaro.answers import AnswerDelta, AnswerFinished, AnswerStarted
from saguaro.client import NO_RETRY, Answer, AsyncClient, Client
from saguaro.client.answer import AnswerBuilder
from saguaro.client.requests import build_request
from saguaro.errors import InvalidRequest, Unavailable
from saguaro.types import FinishReason, SpeculationReport, TokenProvenance
from tests.unit.gateway.house import House, running_house

ANSWER = "The saguaro 🌵 is größer."
NOBODY = r"the gateway at 127\.0\.0\.1:1 cannot be reached"


def in_house(folder: Path, work: Callable[[House], Any], **fake: Any) -> Any:
    """Runs blocking `work` on a thread while the house serves."""

    async def scenario() -> Any:
        async with running_house(folder, ANSWER, **fake) as house:
            return await asyncio.to_thread(work, house)

    return asyncio.run(scenario())


def test_the_synchronous_client_streams_the_answer_and_keeps_the_result(text_folder: Path) -> None:
    def work(house: House) -> None:
        with Client(house.address) as client, client.generate("Hi", seed=5, temperature=0.5) as stream:
            with pytest.raises(RuntimeError, match="has not ended"):
                _ = stream.result
            assert "".join(delta.text for delta in stream) == ANSWER
            assert stream.started is not None
            assert stream.result.seed == 5
            assert stream.result.token_ids == house.verifier.answer
            assert 0 < stream.result.ttft_seconds <= stream.result.elapsed_seconds

    in_house(text_folder, work)


def test_ctrl_c_comes_out_as_itself_wherever_it_falls_and_the_stream_can_still_be_left(text_folder: Path) -> None:
    """It falls where the wait for a message has given its lock back, and the `with` around it fails for that."""

    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house:

            def interrupted() -> None:
                with Client(house.address) as client, client.generate("Hi") as stream:
                    deltas = iter(stream)
                    next(deltas)
                    condition = stream._call._state.condition
                    give_back = condition._release_save

                    def and_ctrl_c() -> None:
                        give_back()
                        raise KeyboardInterrupt

                    condition._release_save = and_ctrl_c
                    with pytest.raises(KeyboardInterrupt):
                        next(deltas)
                    condition._release_save = give_back

            await asyncio.to_thread(interrupted)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_leaving_a_synchronous_stream_early_ends_the_generation_at_the_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house:

            def leave() -> None:
                with Client(house.address) as client, client.generate("Hi") as stream:
                    next(iter(stream))

            await asyncio.to_thread(leave)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_both_clients_tokenize_detokenize_and_list_alike(text_folder: Path) -> None:
    def work(house: House) -> tuple[Any, ...]:
        with Client(house.address) as client:
            ids = client.tokenize(ANSWER)
            return ids, client.detokenize([0, *ids, 1]), client.list_models()

    async def asynchronous() -> tuple[Any, ...]:
        async with running_house(text_folder, ANSWER) as house, AsyncClient(house.address) as client:
            ids = await client.tokenize(ANSWER)
            assert ids == house.text.encode(ANSWER)
            return ids, await client.detokenize([0, *ids, 1]), await client.list_models()

    results = asyncio.run(asynchronous())
    assert in_house(text_folder, work) == results
    assert results[1] == ANSWER
    (served,) = results[2]
    assert (served.model.name, served.speculating) == ("fake", False)
    assert served.not_speculating_reason == "no speculator configured"


def test_errors_of_the_synchronous_client_are_typed(text_folder: Path) -> None:
    def work(house: House) -> None:
        with Client(house.address, retry=NO_RETRY) as client:
            with pytest.raises(InvalidRequest, match="not in the vocabulary"):
                client.detokenize([house.text.vocabulary_size])
            with pytest.raises(Unavailable, match="queue full"):
                client.generate("Hi").finish()

    in_house(text_folder, work, error=Unavailable("queue full"))


def test_without_a_gateway_both_clients_say_who_cannot_be_reached() -> None:
    with Client("127.0.0.1:1", retry=NO_RETRY) as client, pytest.raises(Unavailable, match=NOBODY):
        client.list_models()

    async def asynchronous() -> None:
        async with AsyncClient("127.0.0.1:1", retry=NO_RETRY) as client:
            with pytest.raises(Unavailable, match=NOBODY):
                await client.generate("Hi").finish()

    asyncio.run(asynchronous())


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([5, -1], {}, "-1 is not a token id"),
        ([5, "x"], {}, "'x' is not a token id"),
        ([{"role": "user"}], {}, "is not a message"),
        ("Hi", {"temperature": -0.5}, "temperature is -0.5"),
        ("Hi", {"temperature": float("nan")}, "temperature is nan"),
        ("Hi", {"seed": 1 << 64}, "seed is 18446744073709551616"),
        ("Hi", {"max_tokens": 0}, "max_tokens is 0"),
        ("Hi", {"max_tokens": -3}, "max_tokens is -3"),
        ("Hi", {"max_tokens": 1 << 32}, "max_tokens is 4294967296"),
        ("Hi", {"logit_bias": {5: 101}}, "logit_bias of token 5 is 101"),
        ("Hi", {"stop_token_ids": ["x"]}, "'x' is not a token id"),
        ("Hi", {"stop": ""}, "a stop string has 0 characters"),
        ("Hi", {"n": 0}, "n is 0"),
    ],
)
def test_what_no_gateway_would_take_is_refused_before_it_is_sent(prompt: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        build_request(prompt, options)


def test_speed_counts_the_tokens_after_the_first_piece_over_the_time_after_it() -> None:
    answer = build_answer([(1.5, (7,)), (2.0, (7, 7)), (2.5, (7, 7))], ended_at=2.5)
    assert (answer.ttft_seconds, answer.elapsed_seconds) == (0.5, 1.5)
    assert answer.tokens_per_second == 4 / 1.0


def test_speed_of_an_answer_of_one_piece_counts_it_whole() -> None:
    assert build_answer([(1.5, (7, 7))], ended_at=1.5).tokens_per_second == 2 / 0.5


def test_the_sdk_and_the_chat_need_nothing_but_the_base_package() -> None:
    extras = "jinja2 tokenizers starlette uvicorn grpc_health grpc_reflection torch numpy transformers llguidance"
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r}.split()))\n"  # None: not to be imported
        "import saguaro.client, saguaro.cli, saguaro.cli.chat, saguaro.cli.generate"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_answer(pieces: list[tuple[float, tuple[int, ...]]], ended_at: float) -> Answer:
    """Sent at 1.0 s; pieces as (time, token ids)."""
    builder = AnswerBuilder(sent_at=1.0)
    builder.accept(AnswerStarted("id", "model", 1, (3,)), 1.1)
    for now, ids in pieces:
        builder.accept(AnswerDelta("x", ids, (TokenProvenance.PLAIN,) * len(ids)), now)
    count = sum(len(ids) for _, ids in pieces)
    finished = AnswerFinished(FinishReason.STOP, "", 1, count, 0, SpeculationReport(False))
    builder.accept(finished, ended_at)
    assert builder.results is not None
    return builder.results[0]
