"""Bodies that cost more than they weigh: each is a clear 4xx, and what it costs is bounded by its size."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from gateway.http.bodies import ChatBody, CompletionBody
from gateway.http.sessions import SessionBody
from gateway.http.strict import Strict
from tests.unit.gateway.house import running_house

MOST = 100_000
MANY = 20_000
JSON = {"content-type": "application/json"}
HOSTILE: dict[str, tuple[type[Strict], dict[str, Any]]] = {
    "objects as prompts": (CompletionBody, {"prompt": [{}] * MANY}),
    "lists as prompts": (CompletionBody, {"prompt": [[{}] * MANY] * 2}),
    "numbers as stop strings": (CompletionBody, {"prompt": "x", "stop": [1] * MANY}),
    "text as stop tokens": (CompletionBody, {"prompt": "x", "stop_token_ids": ["x"] * MANY}),
    "text as biases": (CompletionBody, {"prompt": "x", "logit_bias": {str(item): "x" for item in range(MANY)}}),
    "empty messages": (ChatBody, {"messages": [{}] * MANY}),
    "numbers as parts": (ChatBody, {"messages": [{"role": "user", "content": [1] * MANY}]}),
    "numbers as calls": (ChatBody, {"messages": [{"role": "assistant", "tool_calls": [1] * MANY}]}),
    "numbers as tools": (ChatBody, {"messages": [{"role": "user", "content": "x"}], "tools": [1] * MANY}),
    "messages of a session": (SessionBody, {"messages": [{}] * MANY}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_of_many_faults_is_read_up_to_the_first_few(name: str) -> None:
    kind, body = HOSTILE[name]
    with pytest.raises(ValidationError) as refused:
        kind.model_validate_json(json.dumps(body))
    assert refused.value.error_count() <= 8


RAW: dict[str, tuple[bytes, str]] = {
    "many faults": (b'{"prompt": [' + b"{}," * 8000 + b"{}]}", "prompt"),
    "deep": (b'{"prompt": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "recursion limit"),
    "deep where fields are ignored": (b'{"prompt": "x", "y": ' + b'{"z":' * 10_000 + b"1" + b"}" * 10_001, "recursion"),
    "a huge integer": (b'{"prompt": "x", "seed": ' + b"9" * 50_000 + b"}", "number out of range"),
    "a key twice": (b'{"prompt": "x", "prompt": "y"}', 'the key "prompt" twice'),
    "a key twice, deep inside": (b'{"prompt": "x", "response_format": {"a": [{"b": 1, "b": 2}]}}', "response_format"),
    "a key twice in a schema": (
        b'{"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1, "a": 2}}}}',
        'the key "a" twice',
    ),
    "a key twice where fields are ignored": (b'{"prompt": "x", "y": {"b": 1, "b": 2}}', 'the key "b" twice'),
    "a long key": (b'{"prompt": "x", "' + b"k" * 50_000 + b'": 1}', "a key has 50000 characters"),
    "long keys of biases": (b'{"prompt": "x", "logit_bias": {"' + b"k" * 900 + b'": 1}}', 'key "kkkk'),
    "not a number": (b'{"prompt": "x", "top_p": NaN}', "top_p is nan"),
    "no UTF-8": (b'{"prompt": "\xff\xfe"}', "not JSON"),
    "half a character": (b'{"prompt": "\\ud83c"}', "not JSON"),
    "many biases": (
        json.dumps({"prompt": "x", "logit_bias": {str(n): 1 for n in range(2000)}}).encode(),
        "at most 1024",
    ),
}


def test_hostile_bodies_are_400s_with_a_short_sentence(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, max_body_bytes=MOST) as house,
            httpx2.AsyncClient(base_url=house.http_url) as client,
        ):
            for name, (raw, message) in RAW.items():
                response = await client.post("/v1/completions", content=raw, headers=JSON)
                assert response.status_code == 400, name
                said = response.json()["error"]["message"]
                assert message in said, (name, said)
                assert len(said) < 500, name
            assert not house.verifier.requests

    asyncio.run(scenario())


def test_a_body_that_is_declared_over_the_limit_is_a_413_with_both_sizes(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, max_body_bytes=MOST) as house,
            httpx2.AsyncClient(base_url=house.http_url, timeout=20) as client,
        ):
            response = await client.post("/v1/completions", content=b"x" * (MOST + 1), headers=JSON)
            assert response.status_code == 413
            said = response.json()["error"]["message"]
            assert said == f"the body has {MOST + 1} bytes; this gateway takes at most {MOST}"
            assert (await client.get("/livez")).status_code == 200

    asyncio.run(scenario())


def test_a_body_in_pieces_is_refused_as_soon_as_it_is_over_the_limit(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, max_body_bytes=MOST) as house:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.http.port)
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(MOST // 10_000 + 1):
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
            await writer.drain()
            async with asyncio.timeout(10):  # the end of the body never comes
                answer = await reader.readuntil(b"}}")
            assert answer.startswith(b"HTTP/1.1 413")
            assert f"this gateway takes at most {MOST}".encode() in answer
            writer.close()

    asyncio.run(scenario())
