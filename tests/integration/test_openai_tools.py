"""Function calling with the official client against real processes, whose tiny models know nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openai import BadRequestError, OpenAI

from saguaro.cli.trio import Trio
from saguaro.client import Client

CHAT: Any = [{"role": "user", "content": "How is the weather?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Röm", "Paris"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Forecast.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "time"}},
]
SCHEMAS: dict[str, Any] = {"weather": WEATHER, "time": {"maxProperties": 0}}


@pytest.fixture(scope="module")
def trio(tiny_trio: Trio) -> Trio:
    return tiny_trio


@pytest.fixture(scope="module")
def client(trio: Trio) -> Iterator[OpenAI]:
    with OpenAI(base_url=trio.http_url, api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


@pytest.fixture(scope="module")
def model(client: OpenAI) -> str:
    return client.models.list().data[0].id


def assert_valid(name: str, arguments: str) -> None:
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])


@pytest.mark.parametrize("seed", range(3))
def test_a_required_call_is_valid_whole_and_streamed_with_speculation_and_without(
    client: OpenAI, model: str, seed: int
) -> None:
    ask: Any = {"model": model, "messages": CHAT, "tools": TOOLS, "tool_choice": "required", "seed": seed}
    choice = client.chat.completions.create(**ask).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    calls: Any = choice.message.tool_calls
    for call in calls:
        assert_valid(call.function.name, call.function.arguments)
    pieces: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(**ask, stream=True, extra_body={"disable_speculation": True}):
        for delta in chunk.choices[0].delta.tool_calls or ():
            assert delta.function is not None
            pieces.setdefault(delta.index, []).append((delta.function.name or "") + (delta.function.arguments or ""))
    assert ["".join(pieces[index]) for index in sorted(pieces)] == [
        call.function.name + call.function.arguments for call in calls
    ]


def test_a_named_tool_is_called_and_its_result_goes_back(client: OpenAI, model: str) -> None:
    named: Any = {"type": "function", "function": {"name": "weather"}}
    ask: Any = {"model": model, "tools": TOOLS, "seed": 1}
    said = client.chat.completions.create(**ask, messages=CHAT, tool_choice=named).choices[0].message
    assert said.tool_calls is not None
    (call,) = said.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    assert_valid("weather", call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    after = client.chat.completions.create(**ask, messages=[*CHAT, said.to_dict(), result], max_tokens=8)
    assert after.choices[0].finish_reason in ("length", "stop")
    assert after.usage is not None


def test_parameters_that_cannot_be_demanded_are_refused_by_their_field(client: OpenAI, model: str) -> None:
    odd: Any = {"type": "function", "function": {"name": "odd", "parameters": {"properties": {"x": {"type": "no"}}}}}
    with pytest.raises(BadRequestError, match='the parameters of tool "odd" cannot be kept to') as refused:
        client.chat.completions.create(model=model, messages=CHAT, tools=[odd], tool_choice="required")
    assert refused.value.param == "tools"


def test_the_sdk_calls_too(trio: Trio) -> None:
    with Client(trio.gateway_address) as client:
        answer = client.generate(CHAT, tools=TOOLS, tool_choice="required", temperature=0.9, seed=5).finish()
    assert answer.text == ""
    assert answer.tool_calls
    for call in answer.tool_calls:
        assert_valid(call.name, call.arguments)


@pytest.mark.slow
def test_the_demo_model_calls(demo_trio: Trio) -> None:
    with OpenAI(base_url=demo_trio.http_url, api_key="none", max_retries=0, timeout=120) as client:
        ask: Any = {"model": "demo-target", "messages": CHAT, "tools": TOOLS, "temperature": 0}
        called = client.chat.completions.create(**ask, tool_choice="required").choices[0]
        assert called.finish_reason == "tool_calls"
        for call in called.message.tool_calls or ():
            assert call.type == "function"
            assert_valid(call.function.name, call.function.arguments)
        free = client.chat.completions.create(**ask, tool_choice="auto", max_tokens=64).choices[0]
        print(free.message)
