"""OpenAI's API through a real gateway on a real socket, as the official client reads it; the verifier is faked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from saguaro.answers import ChatMessage, ChatPrompt
from saguaro.types import AcceptanceMode, Constraint, ConstraintKind
from tests.unit.gateway.house import CONTEXT_LIMIT, House, running_house

ANSWER = "The saguaro 🌵 is größer."
CHAT: Any = [{"role": "user", "content": "Hi"}]


def in_house(folder: Path, work: Callable[[House, AsyncOpenAI], Awaitable[None]], **fake: Any) -> None:
    """Runs `work` with a house and a client of it."""

    async def scenario() -> None:
        async with running_house(folder, **({"answer": ANSWER} | fake)) as house, client_of(house) as client:
            await work(house, client)

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def client_of(house: House) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{house.http_url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def test_the_served_model_is_listed_and_found_by_name(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        models = (await client.models.list()).data
        assert [model.id for model in models] == ["org/fake"]
        model = await client.models.retrieve("org/fake")
        assert model.to_dict()["max_model_len"] == CONTEXT_LIMIT

    in_house(text_folder, work, name="org/fake")


def test_a_chat_is_answered_with_usage_and_what_speculation_did(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="fake", messages=CHAT, seed=7)
        assert answer.object == "chat.completion"
        assert answer.choices[0].message.content == ANSWER
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        prompt = house.text.encode_prompt(ChatPrompt((ChatMessage("user", "Hi"),)))
        assert house.verifier.requests[0].prompt == prompt
        assert answer.usage.prompt_tokens == len(prompt)
        assert answer.usage.completion_tokens == len(house.verifier.answer)
        document = answer.to_dict()
        assert document["seed"] == 7
        assert document["metrics"]["speculative_decoding"] == {  # type: ignore[index]
            "mean_acceptance_length": 3.0,
            "draft_acceptance_rate": 1.0,
            "num_draft_tokens": 4,
            "num_accepted_draft_tokens": 4,
            "num_spec_steps": 2,
            "cache_hit_rate": 1.0,
            "speculating": True,
            "not_speculating_reason": None,
            "acceptance_mode": "coupled",
        }

    in_house(text_folder, work)


def test_every_parameter_reaches_the_verifier(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        parts: Any = [{"type": "text", "text": "Be"}, {"type": "text", "text": "so"}]
        await client.chat.completions.create(
            model="fake",
            messages=[{"role": "developer", "content": parts}],
            temperature=0.5,
            top_p=0.9,
            seed=3,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            logit_bias={"42": 5},
            max_completion_tokens=5,
            logprobs=True,
            top_logprobs=2,
            extra_body={
                "top_k": 4,
                "min_p": 0.05,
                "repetition_penalty": 1.1,
                "min_tokens": 2,
                "stop_token_ids": [9],
                "ignore_eos": True,
                "acceptance": "rejection",
                "cached_scale": 0.5,
                "disable_speculation": True,
                "include_rounds": True,
                "no such field": 1,
            },
        )
        (request,) = house.verifier.requests
        sampling = request.sampling
        assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 3)
        assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 0.2)
        assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (4, 0.05, 1.1)
        assert (sampling.logit_bias, sampling.stop_token_ids, sampling.min_tokens) == (((42, 5.0),), (9,), 2)
        assert (request.max_tokens, request.logprobs, request.top_logprobs) == (5, True, 2)
        assert (sampling.acceptance, sampling.cached_scale) == (AcceptanceMode.REJECTION, 0.5)
        assert request.ignore_eos
        assert request.disable_speculation
        assert request.include_rounds
        assert request.prompt == house.text.encode_prompt(ChatPrompt((ChatMessage("system", "Be\nso"),)))

    in_house(text_folder, work)


SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}
NAMED_SCHEMA = {"name": "size", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("asked", "constraint"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Constraint(ConstraintKind.JSON_OBJECT)),
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED_SCHEMA}},
            Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA, ensure_ascii=False)),
        ),
        ({"extra_body": {"regex": "[ab]+"}}, Constraint(ConstraintKind.REGEX, "[ab]+")),
        ({"extra_body": {"grammar": 'root ::= "a"'}}, Constraint(ConstraintKind.GRAMMAR, 'root ::= "a"')),
    ],
)
def test_a_format_is_the_constraint_that_it_means(text_folder: Path, asked: Any, constraint: Constraint | None) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        await client.chat.completions.create(model="fake", messages=CHAT, **asked)
        assert house.verifier.requests[0].sampling.constraint == constraint

    in_house(text_folder, work)


def test_what_is_not_given_or_null_is_openais_default(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        nothing: Any = {"temperature": None, "max_tokens": None, "stop": None, "n": None, "tools": None, "stream": None}
        await client.chat.completions.create(model="fake", messages=CHAT, extra_body=nothing)
        await client.completions.create(model="fake", prompt="Hi")
        chat, completion = house.verifier.requests
        assert chat.sampling.temperature == completion.sampling.temperature == 1.0
        assert (chat.max_tokens, completion.max_tokens) == (None, 16)

    in_house(text_folder, work)


def test_the_pieces_of_a_stream_are_the_answer_and_the_last_chunk_has_the_usage(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model="fake", messages=CHAT, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == ANSWER
        assert [chunk.choices[0].finish_reason for chunk in chunks[-3:-1]] == [None, "stop"]
        assert len({chunk.id for chunk in chunks}) == 1
        last = chunks[-1]
        assert last.choices == []
        assert last.usage is not None
        assert last.usage.completion_tokens == len(house.verifier.answer)
        assert last.to_dict()["metrics"]["speculative_decoding"]["num_spec_steps"] == 2  # type: ignore[index]
        assert all(chunk.usage is None for chunk in chunks[:-1])

    in_house(text_folder, work)


def test_without_the_usage_the_last_chunk_is_the_last_choices_end(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        stream = await client.completions.create(model="fake", prompt="Hi", max_tokens=60, stream=True, n=2)
        chunks = [chunk async for chunk in stream]
        for choice in (0, 1):
            mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice]
            assert "".join(piece.text for piece in mine) == ANSWER
            assert [piece.finish_reason for piece in mine if piece.finish_reason] == ["stop"]
        assert ["metrics" in chunk.to_dict() for chunk in chunks] == [False] * (len(chunks) - 1) + [True]

    in_house(text_folder, work)


def test_choices_come_in_order_and_share_one_prompt_in_the_usage(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(
            model="fake", messages=CHAT, n=3, extra_body={"include_rounds": True}
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert sorted(request.sampling.choice for request in house.verifier.requests) == [0, 1, 2]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(house.verifier.requests[0].prompt)
        assert answer.usage.completion_tokens == 3 * len(house.verifier.answer)
        speculation: Any = answer.to_dict()["metrics"]["speculative_decoding"]  # type: ignore[index]
        assert speculation["num_spec_steps"] == 6
        assert speculation["acceptance_histogram"] == [0, 0, 6]
        assert [len(rounds) for rounds in speculation["rounds"]] == [2, 2, 2]
        assert speculation["rounds"][0][0]["lookup"] == "hit"

    in_house(text_folder, work)


def test_logprobs_of_a_chat_spell_the_answer_in_bytes(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="fake", messages=CHAT, logprobs=True)
        stream = await client.chat.completions.create(model="fake", messages=CHAT, logprobs=True, stream=True)
        whole = answer.choices[0].logprobs
        assert whole is not None
        assert whole.content is not None
        *said, end = whole.content
        assert b"".join(bytes(token.bytes or ()) for token in said) == ANSWER.encode()
        assert end.token == "<|im_end|>"
        assert [token.logprob for token in whole.content] == [-float(token) for token in house.verifier.answer]
        parts = [chunk.choices[0].logprobs async for chunk in stream]
        assert [token for part in parts if part for token in part.content or ()] == whole.content

    in_house(text_folder, work)


def test_logprobs_of_a_completion_say_where_each_token_begins(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        answer = await client.completions.create(model="fake", prompt="Hi", max_tokens=60, logprobs=2)
        stream = await client.completions.create(model="fake", prompt="Hi", max_tokens=60, logprobs=2, stream=True)
        whole = answer.choices[0].logprobs
        assert whole is not None
        assert whole.tokens is not None
        assert whole.text_offset is not None
        assert house.verifier.requests[0].top_logprobs == 2
        assert whole.text_offset == [len("".join(whole.tokens[:index])) for index in range(len(whole.tokens))]
        parts = [chunk.choices[0].logprobs async for chunk in stream]
        assert [offset for part in parts if part for offset in part.text_offset or ()] == whole.text_offset

    in_house(text_folder, work)


def test_a_completion_takes_text_ids_and_a_list_of_one(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        ids = house.text.encode("Hi")
        prompts: list[Any] = ["Hi", list(ids), ["Hi"], [list(ids)]]
        for prompt in prompts:
            await client.completions.create(model="fake", prompt=prompt)
        assert [request.prompt for request in house.verifier.requests] == [ids] * 4

    in_house(text_folder, work)


def test_a_stop_string_ends_the_text_before_it(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="fake", messages=CHAT, stop="🌵")
        assert answer.choices[0].message.content == "The saguaro "
        assert answer.choices[0].finish_reason == "stop"

    in_house(text_folder, work)
