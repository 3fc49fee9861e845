"""Clients that are cut off at any event and come back, over gRPC and as server-sent events; the verifier is faked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from saguaro.answers import AnswerRequest, ChatMessage, ChatPrompt, TextPrompt
from saguaro.errors import InvalidRequest, SaguaroError, StreamNotFound, Unavailable
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_request_to_proto
from saguaro.wire.status import error_of
from tests.unit.gateway.house import House, running_house
from tests.unit.gateway.session_door import door_at

ANSWER = "The saguaro 🌵 is größer. " * 2
ASKED = AnswerRequest(TextPrompt("Tell"), seed=1, n=2, resumable=True)
BODY = {"prompt": "Tell", "max_tokens": 50, "n": 2, "seed": 1, "stream": True, "resumable": True}


class Client:
    """Generate, and resume by a name of the test's for the call; what ends a call is raised typed."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self._calls: dict[str, Any] = {}

    def generate(self, name: str, asked: AnswerRequest = ASKED) -> Any:
        # All with one id of the caller's, as a trace of several calls has.
        call = self._stub.Generate(answer_request_to_proto(asked), metadata=(("x-request-id", "trace"),))
        self._calls[name] = call
        return call

    async def id_of(self, name: str) -> str:
        return str(dict(await self._calls[name].initial_metadata())["x-request-id"])

    async def resume(self, name: str, after: int) -> list[pb.GenerateResponse]:
        return await self.resume_id(await self.id_of(name), after)

    async def resume_id(self, request_id: str, after: int) -> list[pb.GenerateResponse]:
        request = pb.ResumeStreamRequest(request_id=request_id, after_sequence_number=after)
        return [event.response for event in await read(self._stub.ResumeStream(request))]

    async def cancel(self, name: str) -> None:
        await self._stub.CancelStream(pb.CancelStreamRequest(request_id=await self.id_of(name)))


async def read(call: Any, most: int = 1000) -> list[Any]:
    """Events up to `most`, then the client goes."""
    events: list[Any] = []
    await call.initial_metadata()
    try:
        while len(events) < most and (event := await call.read()) is not grpc.aio.EOF:
            events.append(event)
    except grpc.aio.AioRpcError as error:
        raise error_of(error, "the gateway") from None
    call.cancel()
    return events


@contextlib.asynccontextmanager
async def client_in_house(folder: Path, **options: Any) -> AsyncIterator[tuple[House, Client]]:
    defaults = {"answer": ANSWER, "resume_seconds": 60.0, "max_concurrent": 64}
    async with (
        running_house(folder, **(defaults | options)) as house,
        grpc.aio.insecure_channel(house.address) as channel,
    ):
        yield house, Client(gateway_pb2_grpc.GatewayServiceStub(channel))


async def until_asked(house: House, num_requests: int) -> None:
    async with asyncio.timeout(10):
        while len(house.verifier.requests) < num_requests:  # noqa: ASYNC110  # nobody would set an event
            await asyncio.sleep(0.005)


def texts_of(events: list[pb.GenerateResponse]) -> dict[int, str]:
    """Text of each choice. Choices come mixed, so whole streams differ from call to call."""
    texts: dict[int, str] = {}
    for event in events:
        part = getattr(event, event.WhichOneof("event"))
        if event.WhichOneof("event") in ("delta", "finished"):
            texts[part.choice] = texts.get(part.choice, "") + part.text
    return texts


def test_over_grpc_a_client_cut_off_after_any_event_reads_the_whole_answer_and_each_event_once(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder) as (house, client):
            undisturbed = await read(client.generate("whole"))
            numbers = [*range(1, len(undisturbed) + 1)]
            assert len(numbers) > 10
            assert [event.sequence_number for event in undisturbed] == numbers
            for drop_at in range(len(numbers) + 1):
                call = client.generate(f"r{drop_at}")
                await until_asked(house, 2 * drop_at + 3)
                events = await read(call, drop_at)
                assert len(events) == drop_at
                events += await client.resume(f"r{drop_at}", drop_at)
                assert [event.sequence_number for event in events] == numbers
                assert texts_of(events) == texts_of(undisturbed) == {0: ANSWER, 1: ANSWER}
                # What a client read before, it may read again, to the byte.
                assert await client.resume(f"r{drop_at}", 0) == events

    asyncio.run(scenario())


async def sse_events(response: httpx2.Response, most: int = 1000) -> list[tuple[str | None, str]]:
    """(id, data) of each event up to `most`."""
    events: list[tuple[str | None, str]] = []
    event_id = None
    lines = response.aiter_lines()
    while len(events) < most and (line := await anext(lines, None)) is not None:
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            events.append((event_id, line.removeprefix("data: ")))
            event_id = None
    return events


def test_over_http_a_client_cut_off_after_any_event_goes_on_from_its_last_event_id(text_folder: Path) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder) as (house, _), httpx2.AsyncClient(base_url=house.http_url) as http:
            drop_at, num_events = 0, 1
            while drop_at <= num_events:
                drop_at += 1
                headers = {"x-request-id": "trace"}
                async with http.stream("POST", "/v1/completions", json=BODY, headers=headers) as response:
                    events = await sse_events(response, drop_at)
                place = f"/v1/streams/{response.headers['x-request-id']}"
                last = {"last-event-id": next((name for name, _ in reversed(events) if name is not None), "0")}
                resumed = await http.get(place, headers=last)
                assert resumed.headers["x-request-id"] == response.headers["x-request-id"]
                assert resumed.headers["content-type"].startswith("text/event-stream")
                rest = await sse_events(resumed)
                assert rest[-1] == (None, "[DONE]")
                events = [event for event in events if event[0] is not None] + rest[:-1]
                num_events = len(events)
                assert [name for name, _ in events] == [str(number) for number in range(1, num_events + 1)]
                whole = await sse_events(await http.get(place))
                assert whole[:-1] == events
            assert num_events > 10

    asyncio.run(scenario())


def test_the_generation_goes_on_while_nobody_reads_and_its_turn_is_kept(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            client_in_house(text_folder, pause_after_runs=1, context_limit=4096) as (house, client),
            door_at(house.address) as door,
        ):
            name = (await door.create()).session_id
            asked = AnswerRequest(ChatPrompt((ChatMessage("user", "Tell"),)), session_id=name, resumable=True)
            await read(client.generate("r", asked), 2)
            assert (await door.get(name)).is_busy
            house.verifier.go_on.set()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            rest = await client.resume("r", 2)
            assert rest[-1].finished.num_generated_tokens == len(house.verifier.answer)
            assert (await door.get(name)).messages[-1] == ChatMessage("assistant", ANSWER)

    asyncio.run(scenario())


def test_a_client_that_does_not_come_back_in_time_ends_the_generation(text_folder: Path) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder, hang_after_runs=1, resume_seconds=0.05) as (house, client):
            await read(client.generate("r"), 2)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            with pytest.raises(StreamNotFound, match="no stream of request"):
                await client.resume("r", 2)
            async with asyncio.timeout(10):
                while house.answers.num_running:  # noqa: ASYNC110  # nobody would set an event
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


@pytest.mark.parametrize("over_http", [False, True])
def test_a_cancelled_stream_ends_the_generation(text_folder: Path, over_http: bool) -> None:
    async def scenario() -> None:
        async with (
            client_in_house(text_folder, hang_after_runs=1) as (house, client),
            httpx2.AsyncClient(base_url=house.http_url) as http,
        ):
            if over_http:
                async with http.stream("POST", "/v1/completions", json=BODY) as response:
                    await sse_events(response, 2)
                name = response.headers["x-request-id"]
                deleted = (await http.delete(f"/v1/streams/{name}")).json()
                assert deleted == {"id": name, "object": "stream", "deleted": True}
                gone = await http.get(f"/v1/streams/{name}")
                assert (gone.status_code, gone.json()["error"]["code"]) == (404, "stream_not_found")
            else:
                await read(client.generate("r"), 2)
                await client.cancel("r")
                with pytest.raises(StreamNotFound):
                    await client.resume("r", 2)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_without_resumable_a_dropped_client_ends_its_answer_whatever_the_setting(text_folder: Path) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder, hang_after_runs=1) as (house, client):
            events = await read(client.generate("r", AnswerRequest(TextPrompt("Tell"))), 2)
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            with pytest.raises(StreamNotFound):
                await client.resume_id(events[0].started.request_id, 2)

    asyncio.run(scenario())


def test_where_streams_are_not_kept_a_resumable_request_is_refused_before_it_costs_anything(text_folder: Path) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder, resume_seconds=0.0) as (house, client):
            with pytest.raises(InvalidRequest, match="resume_seconds is 0") as caught:
                await read(client.generate("r"))
            assert caught.value.field == "resumable"
            assert not house.verifier.requests

    asyncio.run(scenario())


@pytest.mark.parametrize("num_runs", [0, 1])
def test_a_fault_of_the_verifier_reaches_a_client_that_came_back(text_folder: Path, num_runs: int) -> None:
    async def scenario() -> None:
        fault: dict[str, Any] = {"error": Unavailable("queue full", 7.0), "error_after_runs": num_runs}
        async with (
            client_in_house(text_folder, **fault) as (house, client),
            httpx2.AsyncClient(base_url=house.http_url) as http,
        ):
            for asked in (read(client.generate("r")), client.resume("r", 1)):
                with pytest.raises(SaguaroError, match="queue full"):
                    await asked
            answered = await http.post("/v1/completions", json=BODY)
            last = str(answered.text.count("id: "))
            place = f"/v1/streams/{answered.headers['x-request-id']}"
            resumed = await http.get(place, headers={"last-event-id": last})
            assert "queue full" in answered.text
            assert (answered.status_code == 200) == (num_runs > 0)
            # Nothing more is to come: the fault is the whole answer.
            assert resumed.status_code == 503
            assert "queue full" in resumed.text

    asyncio.run(scenario())


@pytest.mark.parametrize(("last", "said"), [("two", 'is \\"two\\"'), ("-1", 'is \\"-1\\"'), ("999", "is 999")])
def test_an_event_id_that_never_was_is_a_400(text_folder: Path, last: str, said: str) -> None:
    async def scenario() -> None:
        async with client_in_house(text_folder) as (house, _), httpx2.AsyncClient(base_url=house.http_url) as http:
            named = (await http.post("/v1/completions", json=BODY)).headers["x-request-id"]
            refused = await http.get(f"/v1/streams/{named}", headers={"last-event-id": last})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "last-event-id")
            assert said in refused.text

    asyncio.run(scenario())
