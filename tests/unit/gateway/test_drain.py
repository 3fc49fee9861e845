"""What a drain's end and a deployment's bounds mean to those who are in the midst of an answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from gateway.requests import Limits
from saguaro.answers import ChatMessage
from saguaro.errors import InvalidRequest
from tests.unit.gateway.house import running_house
from tests.unit.gateway.session_door import door_at

BODY = {"prompt": "Tell", "max_tokens": 50, "n": 1}


@pytest.mark.parametrize("resumable", [False, True])
def test_a_stream_that_a_drain_cuts_ends_with_an_event_that_says_so_and_a_whole_answer_with_a_503(
    text_folder: Path, resumable: bool
) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, hang_after_runs=1, resume_seconds=30, drain_seconds=0.3) as house,
            httpx2.AsyncClient(base_url=house.http_url, timeout=30) as client,
        ):
            streams = [
                asyncio.create_task(client.post(path, json=body | {"stream": True, "resumable": resumable}))
                for path, body in (
                    ("/v1/completions", BODY),
                    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell"}]}),
                )
            ]
            whole = asyncio.create_task(client.post("/v1/completions", json=BODY))
            while len(house.verifier.requests) < 3 or house.verifier.num_runs < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.wait_for(house.http.stop(), 10)
            for stream in streams:
                answer = await stream
                assert answer.status_code == 200
                first, *_, last = [event.removeprefix("data: ") for event in answer.text.strip().split("\n\n")]
                assert "choices" in first
                error = json.loads(last)["error"]
                assert error["type"] == "service_unavailable_error"
                assert error["message"] == "the gateway drained for 0.3 s and ends"
            assert (await whole).status_code == 503
            assert (await whole).headers["retry-after"] == "1"

    asyncio.run(scenario())


def test_a_turn_without_max_tokens_gets_what_the_deployment_answers_at_most(text_folder: Path) -> None:
    async def scenario() -> None:
        limits = Limits(max_concurrent=8, max_answer_tokens=7)
        async with running_house(text_folder, limits=limits) as house, door_at(house.address) as door:
            name = (await door.create(ChatMessage("system", "Brief."))).session_id
            assert (await door.turn(name, "Hi")).num_generated_tokens == 7
            with pytest.raises(InvalidRequest, match="max_tokens is 8; this deployment takes at most 7"):
                await door.turn(name, "Hi", max_tokens=8)
            assert (await door.turn(name, "Hi", max_tokens=3)).num_generated_tokens == 3

    asyncio.run(scenario())


def test_openai_s_default_of_16_tokens_is_no_more_than_the_deployment_takes(text_folder: Path) -> None:
    async def scenario() -> None:
        limits = Limits(max_concurrent=8, max_answer_tokens=7)
        async with (
            running_house(text_folder, limits=limits) as house,
            httpx2.AsyncClient(base_url=house.http_url, timeout=30) as client,
        ):
            answer = await client.post("/v1/completions", json={"prompt": "Hi"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] == 7
            refused = await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 0})
            assert refused.status_code == 400
            assert "max_tokens is 0" in refused.json()["error"]["message"]

    asyncio.run(scenario())
