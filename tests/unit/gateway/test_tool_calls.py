"""Tools over HTTP, as the official client sees them; what the verifier says is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from transformers import AutoTokenizer

from gateway.chat_template import ChatTemplate
from gateway.text import TextModel
from saguaro.answers import ChatMessage, ChatPrompt
from saguaro.client import AsyncClient
from saguaro.tools import Tool, ToolCall
from saguaro.types import ConstraintKind
from tests.unit.gateway.house import House, running_house
from tests.unit.gateway.templates import HERMES_TEMPLATE, LLAMA_TEMPLATE
from tests.unit.gateway.text_folder import write_text_folder

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "description": "Größe 🌵", "parameters": CITY}}
TIME: Any = {"type": "function", "function": {"name": "time"}}
CHAT: Any = [{"role": "user", "content": "Hi"}]
ARGUMENTS = '{"city": "Röm 🌵"}'
SAID = (
    f'I look.\n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
    '\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)
NAMED: Any = {"type": "function", "function": {"name": "time"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("tools"), HERMES_TEMPLATE)


def in_house(folder: Path, answer: str, work: Callable[[House, AsyncOpenAI], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with (
            running_house(folder, answer, context_limit=4096) as house,
            AsyncOpenAI(base_url=f"{house.http_url}/v1", api_key="none", max_retries=0, timeout=20) as client,
        ):
            await work(house, client)

    asyncio.run(scenario())


def test_calls_come_beside_the_text_whole_and_streamed_alike(folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        whole = (await client.chat.completions.create(model="fake", messages=CHAT, tools=[WEATHER, TIME])).choices[0]
        assert whole.finish_reason == "tool_calls"
        assert whole.message.content == "I look."
        calls: Any = whole.message.tool_calls
        assert [(call.type, call.function.name, call.function.arguments) for call in calls] == [
            ("function", "weather", ARGUMENTS),
            ("function", "time", "{}"),
        ]
        assert len({call.id for call in calls}) == 2

        names, arguments, text = dict[int, str](), dict[int, str](), ""
        chunks = await client.chat.completions.create(model="fake", messages=CHAT, tools=[WEATHER, TIME], stream=True)
        async for chunk in chunks:
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or ():
                assert call.function is not None
                if call.id:
                    names[call.index] = call.function.name or ""
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
        assert chunk.choices[0].finish_reason == "tool_calls"
        assert text == "I look."
        assert (names, arguments) == ({0: "weather", 1: "time"}, {0: ARGUMENTS, 1: "{}"})

    in_house(folder, SAID, work)


def test_an_answer_that_calls_nothing_is_text_and_one_without_tools_is_not_parsed(folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        for asked in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
            choice = (await client.chat.completions.create(model="fake", messages=CHAT, **asked)).choices[0]  # type: ignore[call-overload]
            assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (SAID, None, "stop")
        first, second = house.verifier.requests
        assert first.prompt == second.prompt, "the model does not hear of tools that it may not call"

    in_house(folder, SAID, work)


@pytest.mark.parametrize(
    ("asked", "start"),
    [
        ({"tool_choice": "required"}, 'start: call ("\\n" call){0,7}'),
        ({"tool_choice": "required", "parallel_tool_calls": False}, "start: call"),
        ({"tool_choice": NAMED}, "start: call"),
        ({"tool_choice": "auto"}, None),
    ],
)
def test_a_call_that_is_demanded_is_a_constraint(folder: Path, asked: dict[str, Any], start: str | None) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        await client.chat.completions.create(model="fake", messages=CHAT, tools=[WEATHER, TIME], **asked)  # type: ignore[call-overload]
        constraint = house.verifier.requests[0].sampling.constraint
        if start is None:
            assert constraint is None
        else:
            assert constraint is not None
            assert constraint.kind is ConstraintKind.GRAMMAR
            assert constraint.text.splitlines()[0] == start
            assert ("weather" in constraint.text) == (asked["tool_choice"] == "required")

    in_house(folder, SAID, work)


def test_a_format_beside_tools_is_refused(folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        with pytest.raises(BadRequestError, match="tools and json_object are both given") as refused:
            await client.chat.completions.create(
                model="fake", messages=CHAT, tools=[TIME], response_format={"type": "json_object"}
            )
        assert refused.value.param == "tools"

    in_house(folder, SAID, work)


def test_calls_and_their_answers_go_back_through_the_template(folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        asked = await client.chat.completions.create(model="fake", messages=CHAT, tools=[WEATHER, TIME])
        assistant = asked.choices[0].message
        assert assistant.tool_calls is not None
        messages: Any = [
            *CHAT,
            assistant.to_dict(),
            *({"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in assistant.tool_calls),
        ]
        await client.chat.completions.create(model="fake", messages=messages, tools=[WEATHER, TIME])
        prompt = house.text.decode(list(house.verifier.requests[1].prompt))
        assert f"assistant\n{SAID}\n" in prompt
        assert prompt.count("<tool_response>\nsunny\n</tool_response>") == 2

    in_house(folder, SAID, work)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"city": "Röm 🌵"}, ARGUMENTS),
        (None, "{}"),
        ("", "{}"),
        ("null", "{}"),
        ('{"city": "Rö', '{"city": "Rö'),
        ('{"city": ', '{"city": '),
    ],
)
def test_a_call_goes_back_as_clients_have_it(folder: Path, arguments: Any, shown: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}

    async def work(house: House, client: AsyncOpenAI) -> None:
        messages: Any = [*CHAT, {"role": "assistant", "content": None, "tool_calls": [call]}]
        await client.chat.completions.create(model="fake", messages=messages, tools=[WEATHER])
        prompt = house.text.decode(list(house.verifier.requests[0].prompt))
        assert f'{{"name": "weather", "arguments": {shown}}}' in prompt

    in_house(folder, SAID, work)


def test_an_answer_that_was_cut_in_a_call_goes_back_as_it_came(folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        asked = await client.chat.completions.create(model="fake", messages=CHAT, tools=[WEATHER])
        message = asked.choices[0].message
        assert message.tool_calls is not None
        assert getattr(message.tool_calls[0], "function").arguments == '{"city": "Rö'  # noqa: B009
        messages: Any = [*CHAT, message.to_dict(), {"role": "user", "content": "Go on."}]
        await client.chat.completions.create(model="fake", messages=messages, tools=[WEATHER])
        prompt = house.text.decode(list(house.verifier.requests[1].prompt))
        assert '"arguments": {"city": "Rö}' in prompt

    in_house(folder, '<tool_call>\n{"name": "weather", "arguments": {"city": "Rö', work)


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{ arguments | tojson }}", '{"city": "Rö", "n'),
        (
            "{% if arguments is string %}{{ arguments }}{% else %}{{ arguments | tojson }}{% endif %}",
            '{"city": "Rö", "n',
        ),
        ("{% for key, value in arguments.items() %}{{ key }}={{ value }}{% endfor %}", "city=Rö"),
    ],
)
def test_templates_of_every_kind_print_arguments_that_were_cut(template: str, shown: str) -> None:
    source = "{% set arguments = messages[0].tool_calls[0].function.arguments %}" + template
    call = ToolCall("c1", "weather", '{"city": "Rö", "n')
    assert ChatTemplate(source, {}).render([ChatMessage("assistant", "", (call,))]) == shown


def test_grpc_has_the_same_tools(folder: Path) -> None:
    async def work(house: House, _: AsyncOpenAI) -> None:
        async with AsyncClient(house.address) as client:
            answer = await client.generate(CHAT, tools=[WEATHER, TIME]).finish()
            assert answer.text == "I look."
            assert [(call.name, call.arguments) for call in answer.tool_calls] == [
                ("weather", ARGUMENTS),
                ("time", "{}"),
            ]
            await client.generate(CHAT, tools=[WEATHER, TIME], tool_choice="time").finish()
        assert house.verifier.requests[1].sampling.constraint is not None

    in_house(folder, SAID, work)


CHATS = [
    (ChatMessage("user", "Hi"),),
    (
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "", (ToolCall("c1", "weather", '{"city": "Röm", "n": 1.0}'),)),
        ChatMessage("tool", "sunny", (), "c1"),
    ),
]


@pytest.mark.parametrize("template", [HERMES_TEMPLATE, LLAMA_TEMPLATE], ids=["hermes", "llama"])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("with_tools", [True, False])
def test_a_chat_with_tools_becomes_the_very_tokens_that_transformers_makes_of_it(
    tmp_path: Path, template: str, chat: tuple[ChatMessage, ...], with_tools: bool
) -> None:
    text = TextModel.from_folder(write_text_folder(tmp_path, template))
    tool = Tool("weather", "Größe 🌵", json.dumps(CITY))
    documents: list[dict[str, Any]] = [{"role": item.role, "content": item.content} for item in chat]
    for message, document in zip(chat, documents, strict=True):
        if message.tool_calls:
            function = {"name": "weather", "arguments": json.loads(message.tool_calls[0].arguments)}
            document["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    expected = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        documents, tools=[WEATHER] if with_tools else None, add_generation_prompt=True, return_dict=False
    )
    assert text.encode_prompt(ChatPrompt(chat), (tool,) if with_tools else ()) == tuple(expected)
