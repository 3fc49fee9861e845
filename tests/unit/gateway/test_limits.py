"""Sizes and times that a deployment allows, and what a client learns of them at either door."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.guard import Guard
from gateway.http.identity import Entrance
from gateway.requests import Limits
from saguaro.client import AsyncClient
from saguaro.errors import DeadlineExceeded, InvalidRequest
from tests.unit.gateway.house import House, running_house

BODY: dict[str, Any] = {"prompt": "Hi", "max_tokens": 50}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SMALL = Limits(max_concurrent=8, max_prompt_tokens=5, max_answer_tokens=7)


def in_house(
    folder: Path, work: Callable[[House, AsyncClient, httpx2.AsyncClient], Awaitable[None]], **options: Any
) -> None:
    async def scenario() -> None:
        async with (
            running_house(folder, **options) as house,
            AsyncClient(house.address) as client,
            httpx2.AsyncClient(base_url=house.http_url, timeout=20) as http,
        ):
            await work(house, client, http)

    asyncio.run(scenario())


def test_a_longer_prompt_or_answer_than_the_deployment_takes_is_refused_with_both_numbers(text_folder: Path) -> None:
    async def work(house: House, client: AsyncClient, http: httpx2.AsyncClient) -> None:
        for ask, field, message in (
            ({"prompt": [5] * 6}, "prompt", "the prompt has 6 tokens; this deployment takes at most 5"),
            ({"prompt": [5], "max_tokens": 8}, "max_tokens", "max_tokens is 8; this deployment takes at most 7"),
        ):
            with pytest.raises(InvalidRequest, match=message) as refused:
                await client.generate(**ask).finish()  # type: ignore[arg-type]
            assert refused.value.field == field
            response = await http.post("/v1/completions", json={"max_tokens": 7} | ask)
            assert response.status_code == 400
            assert (response.json()["error"]["param"], response.json()["error"]["message"]) == (field, message)
        assert not house.verifier.requests

    in_house(text_folder, work, limits=SMALL)


def test_a_request_without_max_tokens_gets_the_deployments(text_folder: Path) -> None:
    async def work(house: House, client: AsyncClient, http: httpx2.AsyncClient) -> None:
        assert (await client.generate([5]).finish()).num_generated_tokens == 7
        await http.post("/v1/completions", json={"prompt": [5], "max_tokens": 3})
        assert [request.max_tokens for request in house.verifier.requests] == [7, 3]

    in_house(text_folder, work, limits=SMALL)


@pytest.mark.parametrize("runs", [0, 1], ids=["before the first token", "after it"])
def test_an_answer_past_its_time_ends_typed_and_ends_at_the_verifier(text_folder: Path, runs: int) -> None:
    async def work(house: House, client: AsyncClient, http: httpx2.AsyncClient) -> None:
        with pytest.raises(DeadlineExceeded, match=r"the answer was not finished within 0\.4 s"):
            await client.generate("Hi").finish()
        await ends(house)
        whole = await http.post("/v1/completions", json=BODY)
        assert (whole.status_code, whole.json()["error"]["type"]) == (504, "timeout_error")
        await ends(house)
        for path, body in (("completions", BODY), ("chat/completions", CHAT)):
            streamed = await http.post(f"/v1/{path}", json=body | {"stream": True})
            *pieces, last = [json.loads(event.removeprefix("data: ")) for event in streamed.text.strip().split("\n\n")]
            assert (streamed.status_code, bool(pieces)) == ((200, True) if runs else (504, False))
            error = last["error"]
            assert (error["type"], error["message"]) == ("timeout_error", "the answer was not finished within 0.4 s")
            await ends(house)

    in_house(text_folder, work, hang_after_runs=runs, request_timeout_seconds=0.4)


async def ends(house: House) -> None:
    await asyncio.wait_for(house.verifier.ended.wait(), 10)
    house.verifier.ended.clear()


def test_a_client_may_set_a_shorter_time_over_http_but_no_longer_one(text_folder: Path) -> None:
    async def work(house: House, client: AsyncClient, http: httpx2.AsyncClient) -> None:
        short = await http.post("/v1/completions", json=BODY | {"timeout": 0.2})
        assert (short.status_code, "within 0.2 s" in short.text) == (504, True)
        long = await http.post("/v1/completions", json=BODY | {"timeout": 1000})
        assert (long.status_code, "within 0.5 s" in long.text) == (504, True)
        for bad in (0, -1, "1"):
            response = await http.post("/v1/completions", json=BODY | {"timeout": bad})
            assert (response.status_code, response.json()["error"]["param"]) == (400, "timeout")

    in_house(text_folder, work, hang_after_runs=0, request_timeout_seconds=0.5)


def test_a_client_that_reads_nothing_loses_its_connection_when_its_time_is_over() -> None:
    async def scenario() -> None:
        released = asyncio.Event()

        async def stalled(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            try:
                await asyncio.Event().wait()  # as a write to a full socket
            finally:
                released.set()

        said = []

        async def send(message: Any) -> None:
            said.append(message)

        entrance = Entrance(stalled, Guard(), longest_call_seconds=0.1)
        scope = {"type": "http", "path": "/v1/x", "headers": [], "method": "GET", "query_string": b"", "scheme": "http"}
        started = time.monotonic()
        await entrance(scope, _nothing, send)
        assert released.is_set()
        assert len(said) == 1
        assert time.monotonic() - started < 5

    asyncio.run(scenario())


async def _nothing() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("asked", [False, True])
def test_prompts_are_in_the_log_only_where_that_is_asked_for(
    text_folder: Path, caplog: pytest.LogCaptureFixture, asked: bool
) -> None:
    async def work(house: House, client: AsyncClient, http: httpx2.AsyncClient) -> None:
        await http.post("/v1/completions", json=BODY | {"prompt": "cactus-in-text"})
        await client.generate([{"role": "user", "content": "cactus-in-chat"}]).finish()

    with caplog.at_level(logging.DEBUG):
        in_house(text_folder, work, log_prompts=asked)
    assert [word in caplog.text for word in ("cactus-in-text", "cactus-in-chat")] == [asked] * 2
