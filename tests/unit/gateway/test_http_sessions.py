"""Sessions over HTTP, with the official client where it has a way to say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, ConflictError, NotFoundError

from gateway.http.openapi import openapi_document
from tests.unit.gateway.house import House
from tests.unit.gateway.test_http import ANSWER, in_house

SYSTEM = {"role": "system", "content": "Be brief."}


def says(text: str) -> Any:
    return [{"role": "user", "content": text}]


def dialled(house: House) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=house.http_url, timeout=20)


def test_a_session_is_made_used_streamed_in_looked_at_and_deleted(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        async with dialled(house) as http:
            made = (await http.post("/v1/sessions", json={"messages": [SYSTEM]})).json()
            assert (made["object"], made["model"], made["num_turns"]) == ("session", "fake", 0)
            inside: Any = {"session_id": made["id"]}
            answer = await client.chat.completions.create(model="fake", messages=says("Tell"), extra_body=inside)
            assert answer.choices[0].message.content == ANSWER
            stream = await client.chat.completions.create(
                model="fake", messages=says("More"), stream=True, extra_body=inside
            )
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == ANSWER
            first, second = (request.prompt for request in house.verifier.requests)
            assert second[: len(first) + len(house.verifier.answer)] == first + house.verifier.answer
            seen = (await http.get(f"/v1/sessions/{made['id']}")).json()
            assert seen["messages"][:3] == [SYSTEM, *says("Tell"), {"role": "assistant", "content": ANSWER}]
            assert (seen["num_turns"], seen["prefix_reused"], seen["busy"]) == (2, True, False)
            assert seen["num_tokens"] == len(second) + len(house.verifier.answer)
            assert made["created"] <= made["expires_at"] <= seen["expires_at"]
            gone = await http.delete(f"/v1/sessions/{made['id']}")
            assert gone.json() == {"id": made["id"], "object": "session", "deleted": True}
            for answered in (
                await http.get(f"/v1/sessions/{made['id']}"),
                await http.delete(f"/v1/sessions/{made['id']}"),
            ):
                assert answered.status_code == 404
                assert answered.json()["error"]["code"] == "session_not_found"
            with pytest.raises(NotFoundError) as caught:
                await client.chat.completions.create(model="fake", messages=says("Tell"), extra_body=inside)
            assert caught.value.param == "session_id"

    in_house(text_folder, work, context_limit=4096)


def test_a_busy_session_is_a_409(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        async with dialled(house) as http:
            made = (await http.post("/v1/sessions", json={})).json()
            ask: Any = {"model": "fake", "messages": says("Tell"), "extra_body": {"session_id": made["id"]}}
            running = await client.chat.completions.create(stream=True, **ask)
            await anext(running)
            for streams in (False, True):
                with pytest.raises(ConflictError) as caught:
                    await client.chat.completions.create(stream=streams, **ask)
                assert caught.value.code == "session_busy"
            await running.close()

    in_house(text_folder, work, hang_after_runs=1)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/sessions", {"messages": 5}, "messages"),
        ("/v1/sessions", {"messages": [{"role": "robot", "content": ""}]}, "messages"),
        ("/v1/sessions", {"model": 1}, "model"),
        ("/v1/sessions", [], None),
        ("/v1/chat/completions", {"messages": says("Hi"), "session_id": 5}, "session_id"),
        ("/v1/chat/completions", {"messages": says("Hi"), "resumable": True}, "resumable"),
        ("/v1/chat/completions", {"messages": says("Hi"), "resumable": True, "stream": True}, "resumable"),
    ],
)
def test_what_is_malformed_is_a_400_that_names_the_field(
    text_folder: Path, path: str, body: Any, param: str | None
) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        async with dialled(house) as http:
            refused = await http.post(path, json=body)
            assert refused.status_code == 400, refused.text
            assert refused.json()["error"]["param"] == param

    in_house(text_folder, work)


def test_a_completion_of_text_cannot_be_a_turn_and_other_methods_are_not_allowed(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        async with dialled(house) as http:
            made = (await http.post("/v1/sessions", json={})).json()
            refused = await http.post("/v1/completions", json={"prompt": "Hi", "session_id": made["id"]})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
            assert (await http.put(f"/v1/sessions/{made['id']}")).status_code == 405
            assert (await http.post("/v1/sessions", json={"model": "gpt"})).status_code == 404

    in_house(text_folder, work)


def test_the_openapi_document_describes_the_routes_and_their_names() -> None:
    document = openapi_document()
    assert set(document["paths"]["/v1/sessions/{session_id}"]) == {"get", "delete", "parameters"}
    assert [item["name"] for item in document["paths"]["/v1/streams/{request_id}"]["parameters"]] == ["request_id"]
    assert "messages" in document["components"]["schemas"]["SessionBody"]["properties"]
    for field in ("session_id", "resumable"):
        assert field in document["components"]["schemas"]["ChatBody"]["properties"]
