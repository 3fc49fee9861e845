"""Keys and their limits at both doors of a real gateway: what is refused, how, and what stays open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from gateway.guard import Guard, KeysFile
from saguaro.errors import ConfigurationError, PermissionDenied, RateLimited, SaguaroError, Unauthenticated
from saguaro.keys import KeyRecord, hash_of, new_key, write_keys
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.status import error_of
from tests.unit.gateway.house import House, running_house

KEY = new_key()
BODY: dict[str, Any] = {"prompt": "Hi", "max_tokens": 50}


def record(**limits: Any) -> KeyRecord:
    return KeyRecord(name="ann", sha256=hash_of(KEY), **limits)


class Caller:
    """One house, asked over both doors with one key; an error is the typed one, or status and document."""

    def __init__(self, house: House, channel: Any, http: httpx2.AsyncClient) -> None:
        self.house, self._stub, self.http = house, gateway_pb2_grpc.GatewayServiceStub(channel), http

    async def generate(self, key: str | None = KEY) -> SaguaroError | None:
        return await self._typed(self._stub.Generate(pb.GenerateRequest(text="Hi"), metadata=bearer(key)), stream=True)

    async def tokenize(self, key: str | None = KEY) -> SaguaroError | None:
        return await self._typed(self._stub.Tokenize(pb.TokenizeRequest(text="Hi"), metadata=bearer(key)))

    async def models(self, key: str | None = KEY) -> Any:
        return await self._stub.ListModels(pb.ListModelsRequest(), metadata=bearer(key))

    async def complete(self, key: str | None = KEY, **body: Any) -> httpx2.Response:
        return await self.http.post("/v1/completions", json=BODY | body, headers=dict(bearer(key)))

    async def _typed(self, call: Any, *, stream: bool = False) -> SaguaroError | None:
        try:
            if stream:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return error_of(error, "the gateway")
        return None


def bearer(key: str | None) -> list[tuple[str, str]]:
    return [] if key is None else [("authorization", f"Bearer {key}".rstrip())]


@contextlib.asynccontextmanager
async def calling(folder: Path, guard: Guard, **house_options: Any) -> AsyncIterator[Caller]:
    async with (
        running_house(folder, guard=guard, **house_options) as house,
        grpc.aio.insecure_channel(house.address) as channel,
        httpx2.AsyncClient(base_url=house.http_url, timeout=20) as http,
    ):
        yield Caller(house, channel, http)


def in_house(folder: Path, guard: Guard, work: Callable[[Caller], Awaitable[None]], **house_options: Any) -> None:
    async def scenario() -> None:
        async with calling(folder, guard, **house_options) as caller:
            await work(caller)

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [None, "", "wrong", new_key()], ids=["none", "empty", "wrong", "another"])
def test_without_a_known_key_no_call_comes_in_by_either_door(text_folder: Path, key: str | None) -> None:
    async def work(caller: Caller) -> None:
        for refused in (await caller.generate(key), await caller.tokenize(key)):
            assert isinstance(refused, Unauthenticated)
        response = await caller.complete(key)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)
        assert "API key" in error["message"]
        assert not key or key not in error["message"]
        for path in ("/v1/models", "/v1/models/fake", "/v1/nowhere", "/"):
            assert (await caller.http.get(path, headers=dict(bearer(key)))).status_code == 401, path
        for path in ("/livez", "/readyz", "/openapi.json"):
            assert (await caller.http.get(path)).status_code == 200, path
        assert not caller.house.verifier.requests

    in_house(text_folder, Guard([record()]), work)


@pytest.mark.parametrize("host", ["x/livez?", "x/livez#", "x/livez;"])
def test_a_host_header_that_looks_like_an_open_path_opens_nothing(text_folder: Path, host: str) -> None:
    async def work(caller: Caller) -> None:
        response = await caller.http.post("/v1/completions", json=BODY, headers={"host": host})
        assert response.status_code == 401
        for path in ("//livez", "/livez/", "/livez/../v1/models", "/LIVEZ"):
            assert (await caller.http.get(path)).status_code in (401, 404), path
        assert not caller.house.verifier.requests

    in_house(text_folder, Guard([record()]), work)


def test_a_known_key_comes_in_by_both_doors_and_its_scheme_has_any_case(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        assert await caller.generate() is await caller.tokenize() is None
        assert (await caller.complete()).status_code == 200
        response = await caller.http.get("/v1/models", headers={"Authorization": f"bearer  {KEY}"})
        assert [card["id"] for card in response.json()["data"]] == ["fake"]
        assert [item.model.name for item in (await caller.models()).models] == ["fake"]

    in_house(text_folder, Guard([record()]), work)


def test_a_key_past_its_day_is_refused_with_the_day(text_folder: Path) -> None:
    day = datetime(2030, 5, 1, tzinfo=UTC)

    async def work(caller: Caller) -> None:
        refused = await caller.generate()
        assert isinstance(refused, Unauthenticated)
        assert 'key "ann" expired at 2030-05-01T00:00:00+00:00' in str(refused)
        assert (await caller.complete()).status_code == 401

    in_house(text_folder, Guard([record(expires_at=day)], now=lambda: day + timedelta(seconds=1)), work)


def test_a_model_that_is_not_the_keys_is_a_403_and_not_listed(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        for refused in (await caller.generate(), await caller.tokenize()):
            assert isinstance(refused, PermissionDenied)
            assert 'key "ann" may not ask for the model "fake"; it may ask for other' in str(refused)
        response = await caller.complete()
        assert (response.status_code, response.json()["error"]["type"]) == (403, "permission_error")
        listed = await caller.http.get("/v1/models", headers=dict(bearer(KEY)))
        assert listed.json()["data"] == list((await caller.models()).models) == []
        assert (await caller.http.get("/v1/models/fake", headers=dict(bearer(KEY)))).status_code == 403

    in_house(text_folder, Guard([record(models=("other",))]), work)


def test_calls_of_both_doors_share_one_rate_and_the_next_one_s_time_is_told(text_folder: Path) -> None:
    now = [0.0]

    async def work(caller: Caller) -> None:
        assert await caller.generate() is None
        assert (await caller.complete()).status_code == 200
        refused = await caller.tokenize()
        assert isinstance(refused, RateLimited)
        assert refused.retry_after_seconds == pytest.approx(30)
        response = await caller.complete()
        assert (response.status_code, response.headers["retry-after"]) == (429, "30")
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        now[0] = 30.0
        assert await caller.generate() is None

    in_house(text_folder, Guard([record(requests_per_minute=2)], clock=lambda: now[0]), work)


def test_tokens_of_prompt_and_answer_count_against_the_key(text_folder: Path) -> None:
    now = [0.0]

    async def work(caller: Caller) -> None:
        response = await caller.complete()
        used = response.json()["usage"]["total_tokens"]
        refused = await caller.complete()
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) == used - 4 + 1  # one token fills in a second; one begins an answer

    in_house(text_folder, Guard([record(tokens_per_minute=60)], clock=lambda: now[0]), drained_to(4, work))


def drained_to(tokens: int, work: Callable[[Caller], Awaitable[None]]) -> Callable[[Caller], Awaitable[None]]:
    """Runs `work` when the key, of 60 tokens a minute, has so many left."""

    async def first(caller: Caller) -> None:
        prompt = list(range(60, 60 + 60 - tokens - 1))
        await caller.complete(prompt=prompt, max_tokens=1)
        await work(caller)

    return first


def test_answers_at_once_are_bounded_by_key_over_both_doors(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        running = asyncio.create_task(caller.generate())
        async with asyncio.timeout(10):
            while not caller.house.verifier.requests:  # noqa: ASYNC110  # nobody would set an event
                await asyncio.sleep(0.01)
        refused = await caller.complete()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "1 answers at once" in refused.json()["error"]["message"]
        assert (await caller.complete(n=2)).status_code == 400
        caller.house.verifier.stopped.set()
        assert await running is None
        assert (await caller.complete()).status_code == 200

    in_house(text_folder, Guard([record(concurrent_answers=1)]), work, hang_after_runs=1)


def test_a_changed_file_is_in_force_within_a_second_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.json"
    other = new_key()
    write_keys(file, [record(requests_per_minute=1)])
    guard = Guard()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(1):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def enters(key: str) -> bool:
        with contextlib.suppress(Unauthenticated):
            return guard.enter(f"Bearer {key}").name != ""
        return False

    async def scenario() -> None:
        async with KeysFile(file, guard).watched():
            assert enters(KEY)
            write_keys(file, [record(requests_per_minute=1), KeyRecord(name="bob", sha256=hash_of(other))])
            await until(lambda: enters(other))
            with pytest.raises(RateLimited):  # what ann had used before, she has used
                guard.enter(f"Bearer {KEY}")
            file.write_text("{")
            await until(lambda: "stay as they were" in caplog.text)
            file.unlink()
            await until(lambda: caplog.text.count("stay as they were") == 2)
            assert enters(other)
            write_keys(file, [record()])
            await until(lambda: not enters(other))
            assert enters(KEY)
        assert caplog.text.count("stay as they were") == 2

    with caplog.at_level(logging.INFO, logger="gateway.guard"):
        asyncio.run(scenario())


def test_a_file_that_is_not_there_at_the_start_ends_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with KeysFile(tmp_path / "none.json", Guard()).watched():
            pass

    with pytest.raises(ConfigurationError, match=r"cannot read the keys file .*none.json: No such file"):
        asyncio.run(scenario())
