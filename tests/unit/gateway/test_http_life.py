"""The life of an HTTP request and of its port: faults in the stream, clients that go, starts and drains."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIError, InternalServerError

from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError
from tests.unit.gateway.house import House, running_house
from tests.unit.gateway.test_http import in_house

ANSWER = "The saguaro 🌵 is größer."
BODY: dict[str, Any] = {"prompt": "Hi", "max_tokens": 50}


@contextlib.asynccontextmanager
async def dialled(house: House) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=house.http_url, timeout=20) as client:
        yield client


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # nobody would set an event
            await asyncio.sleep(0.01)


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_a_client_that_leaves_a_stream_ends_the_generation_at_the_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, dialled(house) as client:
            async with client.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as response:
                assert (await anext(response.aiter_lines())).startswith("data: ")
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_before_the_whole_answer_ends_every_choice(text_folder: Path, n: int) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, max_concurrent=n, hang_after_runs=1) as house, dialled(house) as client:
            asking = asyncio.create_task(client.post("/v1/completions", json=BODY | {"n": n}))
            await until(lambda: len(house.verifier.requests) == n)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            await until(lambda: house.answers.num_running == 0)

    asyncio.run(scenario())


async def leave_after(house: House, seconds: float) -> None:
    """Ask, and close the connection whatever has come."""
    body = json.dumps(BODY | {"stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    _, writer = await asyncio.open_connection("127.0.0.1", house.http.port)
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await asyncio.sleep(seconds)
    writer.close()


def test_after_a_storm_of_clients_that_leave_every_place_is_free(text_folder: Path) -> None:
    async def scenario() -> None:
        chance = random.Random(3)
        async with running_house(text_folder, max_concurrent=60) as house, dialled(house) as client:
            await asyncio.gather(*(leave_after(house, chance.uniform(0, 0.3)) for _ in range(60)))
            await until(lambda: house.answers.num_running == 0)
            answer = await client.post("/v1/completions", json=BODY | {"n": 60})
            assert len(answer.json()["choices"]) == 60

    asyncio.run(scenario())


def test_a_fault_before_the_first_token_is_a_500_and_after_it_an_event_of_the_stream(text_folder: Path) -> None:
    async def work(house: House, client: Any) -> None:
        ask = {"model": "fake", "prompt": "Hi", "max_tokens": 50, "stream": True}
        with pytest.raises(InternalServerError, match=r"internal error") as refused:
            await client.completions.create(**ask)
        assert refused.value.type == "server_error"
        house.verifier.error_after_runs = 1
        stream = await client.completions.create(**ask)
        assert (await anext(stream)).choices[0].text
        with pytest.raises(APIError, match="internal error"):
            await anext(stream)

    in_house(text_folder, work, error=RuntimeError("a bug"))


def test_over_the_bound_is_a_503_with_retry_after_and_not_ready(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, max_concurrent=1, hang_after_runs=1) as house,
            dialled(house) as client,
            client.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as response,
        ):
            lines = response.aiter_lines()  # its end would end the response
            await anext(lines)
            refused = await client.post("/v1/completions", json=BODY)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert "takes 1 at once" in refused.json()["error"]["message"]
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/livez")).status_code == 200

    asyncio.run(scenario())


def test_an_answer_carries_an_id_of_the_gateway_s_and_the_caller_s_if_that_can_travel(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, dialled(house) as client:
            ids = []
            for given, echoed in (("mine", "mine"), ("mine", "mine"), (b"gr\xfc\xdf", None), ("x" * 129, None)):
                answer = await client.post("/v1/completions", json=BODY, headers={"x-request-id": given})
                assert answer.status_code == 200
                assert answer.headers.get("x-client-request-id") == echoed
                ids.append(answer.headers["x-request-id"])
                assert answer.json()["id"] == f"cmpl-{ids[-1]}"
            assert ids == [request.request_id for request in house.verifier.requests]
            assert len(set(ids)) == 4

    asyncio.run(scenario())


def test_parallel_calls_under_one_trace_id_are_all_answered(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, resume_seconds=30) as house, dialled(house) as client:
            asked = BODY | {"stream": True, "resumable": True}
            calls = [
                client.post("/v1/completions", json=asked, headers={"x-request-id": "one-trace"}) for _ in range(5)
            ]
            answers = await asyncio.gather(*calls)
            assert [answer.status_code for answer in answers] == [200] * 5
            assert all(answer.text.rstrip().endswith("[DONE]") for answer in answers)

    asyncio.run(scenario())


def test_a_drain_finishes_running_streams_and_takes_no_new_connection(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, dialled(house) as client:
            async with client.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as response:
                lines = response.aiter_lines()
                await anext(lines)
                port = house.http.port
                house.http.drain()
                stopped = asyncio.create_task(house.http.stop())
                await until(lambda: not listens(port))
                house.verifier.stopped.set()
                rest = [line async for line in lines]
                assert rest[-2:] == ["data: [DONE]", ""]
            await asyncio.wait_for(stopped, 10)

    asyncio.run(scenario())


def test_until_it_is_open_the_door_is_alive_not_ready_and_refuses_by_a_503(text_folder: Path) -> None:
    async def scenario() -> None:
        door = HttpDoor(request_timeout_seconds=5, max_body_bytes=1000)
        server = HttpServer(GatewaySettings(port=0, http_port=0), door.app)
        await server.start()
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            assert (await client.get("/livez")).status_code == 200
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.text) == (503, "the gateway is starting")
            asked = await client.post("/v1/completions", json=BODY)
            assert asked.status_code == (await client.get("/v1/models")).status_code == 503
            assert asked.json()["error"]["message"] == "the gateway is starting"
        await server.stop()

    asyncio.run(scenario())


def test_a_taken_port_is_a_sentence_that_names_it_and_none_is_no_port() -> None:
    door = HttpDoor(request_timeout_seconds=5, max_body_bytes=1000)

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = HttpServer(GatewaySettings(http_port=port), door.app)
            with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port}.*--http-port"):
                await server.start()
        off = HttpServer(GatewaySettings(http_port=None), door.app)
        await off.start()
        await off.stop()

    asyncio.run(scenario())


def test_the_openapi_document_describes_both_bodies(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, dialled(house) as client:
            document = (await client.get("/openapi.json")).json()
            for path, body in (("/v1/chat/completions", "ChatBody"), ("/v1/completions", "CompletionBody")):
                schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{body}"}
                assert "temperature" in document["components"]["schemas"][body]["properties"]
            assert json.dumps(document).count("#/components/schemas/") >= 4

    asyncio.run(scenario())
