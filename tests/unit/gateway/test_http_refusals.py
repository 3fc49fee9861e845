"""What cannot be served over HTTP is refused in OpenAI's shape, with the field, what was given and what would work."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

import saguaro.errors
from gateway.http.errors import STATUS_OF
from tests.unit.gateway.house import running_house

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"prompt": "Hi"}
NAMED = {"type": "function", "function": {"name": "other"}}
CALL = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "[]"}}


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | function}


TOOL = tool("look_up")

CASES: list[tuple[dict[str, Any], str, str]] = [
    (CHAT | {"temperature": -1}, "temperature", "temperature is -1.0; it must be from 0"),
    (CHAT | {"temperature": "1"}, "temperature", "temperature is '1': input should be a valid number"),
    (CHAT | {"top_p": 0}, "top_p", "top_p is 0.0"),
    (CHAT | {"n": 129}, "n", "from 1 to 128"),
    (CHAT | {"n": 10**400}, "n", "from 1 to 128"),
    (CHAT | {"n": 1.5}, "n", "n is 1.5"),
    (CHAT | {"seed": -1}, "seed", "from 0 to 2\\*\\*64"),
    (CHAT | {"stop": [""]}, "stop", "0 characters"),
    (CHAT | {"max_tokens": 0}, "max_tokens", "at least 1"),
    (CHAT | {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "max_completion_tokens 4; give one"),
    (CHAT | {"top_logprobs": 2}, "top_logprobs", "asked for"),
    (CHAT | {"top_logprobs": 21, "logprobs": True}, "top_logprobs", "from 0 to 20"),
    (CHAT | {"logit_bias": {"cactus": 1}}, "logit_bias", '"cactus"'),
    (CHAT | {"logit_bias": {"99999": 1}}, "logit_bias", "not in the vocabulary"),
    (CHAT | {"stop_token_ids": [-1]}, "stop_token_ids", "stop_token_ids.0 is -1"),
    (CHAT | {"functions": [{"name": "f"}]}, "functions", r"does not support it; leave it out \(null, \[\] would do\)"),
    (CHAT | {"tools": [{"type": "function"}]}, "tools", "tools.0.function is missing"),
    (CHAT | {"tools": [{"type": "custom"}]}, "tools", "tools.0.type is 'custom': input should be 'function'"),
    (CHAT | {"tools": [TOOL]}, "tools", "chat template knows no tools"),
    (CHAT | {"tools": [TOOL, TOOL]}, "tools", 'two tools are called "look_up"'),
    (CHAT | {"tools": [tool("a b")]}, "tools", 'called "a b"; names are 1 to 64 letters'),
    (CHAT | {"tools": [tool("f", parameters={"type": "array"})]}, "tools", 'parameters of tool "f" are not the JSON'),
    (CHAT | {"tools": [TOOL], "tool_choice": NAMED}, "tool_choice", '"other"; the tools that are given are look_up'),
    (CHAT | {"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice", "tool_choice is 'perhaps'"),
    (CHAT | {"tool_choice": "required"}, "tool_choice", "no tools to choose from"),
    ({"messages": [{"role": "user"}]}, "messages", "messages.0.content is missing"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "messages.0.tool_call_id is missing"),
    (
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
        "messages",
        'the call "c", which no earlier',
    ),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages", 'role is "user", not "assis'),
    ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages", '"look_up" are not a JSON object'),
    (CHAT | {"reasoning_effort": "high"}, "reasoning_effort", "does not support"),
    (CHAT | {"acceptance": "hope"}, "acceptance", "'coupled' or 'rejection'"),
    (CHAT | {"cached_scale": 2}, "cached_scale", "from 0 to 1"),
    (CHAT | {"response_format": {"type": "xml"}}, "response_format", "'xml'"),
    (CHAT | {"response_format": {"type": "json_schema"}}, "response_format", "json_schema is missing"),
    (CHAT | {"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos", "json_object"),
    (CHAT | {"response_format": {"type": "json_object"}, "regex": "a"}, "regex", "both given"),
    (CHAT | {"regex": ""}, "regex", "empty"),
    (CHAT | {"store": True}, "store", "does not support"),
    ({"messages": []}, "messages", "at least 1 item"),
    ({}, "messages", "messages is missing"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages", "messages.0.role is 'robot'"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages", "messages.0.content is 5"),
    ({"messages": [{"role": "user", "content": "x " * 200}]}, "messages", "the context limit is 64"),
    (TEXT | {"logprobs": 21}, "logprobs", "less than or equal to 20"),
    (TEXT | {"echo": True}, "echo", "does not support"),
    (TEXT | {"best_of": 2}, "best_of", "does not support"),
    ({"prompt": ["a", "b"]}, "prompt", "2 prompts are given"),
    ({"prompt": []}, "prompt", "empty"),
    ({"prompt": [99_999]}, "prompt", "not in the vocabulary"),
    (CHAT | {"stream_options": {"include_usage": True}}, "stream_options", "stream is not true"),
]


RAW = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b'{"prompt": "\\ud800"}', "not JSON"),
    (b"[" * 9000, "recursion"),
    (b"[]", "should be an object"),
    (b'{"prompt": "x", "temperature": NaN}', "temperature is nan"),
    (b'{"prompt": "x", "temperature": 1e999}', "temperature is inf"),
]


def ask(folder: Path, *requests: dict[str, Any]) -> list[httpx2.Response]:
    """The answers of one house to all requests; its verifier hears of none."""

    async def scenario() -> list[httpx2.Response]:
        async with (
            running_house(folder, max_body_bytes=10_000) as house,
            httpx2.AsyncClient(base_url=house.http_url) as client,
        ):
            responses = [await client.post(request.pop("url", COMPLETIONS), **request) for request in requests]
            assert not house.verifier.requests
            return responses

    return asyncio.run(scenario())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_bad_field_is_a_400_that_names_it(text_folder: Path, stream: bool) -> None:
    requests = [
        {"url": COMPLETIONS if "prompt" in body else CHATS, "json": body | ({"stream": True} if stream else {})}
        for body, param, _ in CASES
        if not (stream and param == "stream_options")
    ]
    for response, (_, param, message) in zip(ask(text_folder, *requests), CASES, strict=False):
        error = response.json()["error"]
        assert response.status_code == 400, error
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param, error
        assert re.search(message, error["message"]), error["message"]


def test_a_body_that_is_no_json_object_of_numbers_and_text_is_a_400(text_folder: Path) -> None:
    requests = [{"content": raw, "headers": {"content-type": "application/json"}} for raw, _ in RAW]
    for response, (raw, message) in zip(ask(text_folder, *requests), RAW, strict=True):
        assert response.status_code == 400, raw
        assert message in response.json()["error"]["message"]


def test_a_body_over_the_limit_is_a_413_that_says_the_limit(text_folder: Path) -> None:
    (response,) = ask(text_folder, {"json": {"prompt": "x" * 10_000}})
    assert response.status_code == 413
    assert "10000" in response.json()["error"]["message"]


def test_a_body_that_does_not_say_that_it_is_json_is_a_415(text_folder: Path) -> None:
    (response,) = ask(text_folder, {"content": b"{}", "headers": {"content-type": "text/plain"}})
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]["message"]


def test_an_unknown_model_and_an_unknown_path_are_404_and_a_wrong_method_405(text_folder: Path) -> None:
    model, path, method = ask(text_folder, {"json": TEXT | {"model": "other"}}, {"url": "/v2"}, {"url": "/v1/models"})
    assert model.status_code == 404
    assert model.json()["error"]["code"] == "model_not_found"
    assert path.status_code == 404
    assert path.json()["error"]["message"] == "POST /v2: not found"
    assert method.status_code == 405


def test_every_error_of_the_tree_has_a_status() -> None:
    tree = [kind for kind in vars(saguaro.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert set(STATUS_OF) == set(tree)
