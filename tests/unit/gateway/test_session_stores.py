"""What every session store does: in memory, in a file, and in a real Redis or Valkey server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.sessions import SessionStore, StoreLimits, open_store
from saguaro.errors import ConfigurationError, SessionBusy, Unavailable
from tests.unit.gateway.redis_server import free_port, running_redis

LIMITS = StoreLimits(ttl_seconds=60, max_sessions=1000)
SHORT = 0.05  # seconds


@pytest.fixture(params=["sqlite", "redis"])
def shared_spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that two gateways can open."""
    url: str = f"sqlite://{tmp_path}/s.db" if request.param == "sqlite" else request.getfixturevalue("redis_url")
    return url


@contextlib.asynccontextmanager
async def opened(spec: str, limits: StoreLimits = LIMITS) -> AsyncIterator[SessionStore]:
    store = open_store(spec, limits)
    try:
        yield store
    finally:
        await store.close()


def new_id() -> str:
    return secrets.token_hex(8)


async def held_session(store: SessionStore) -> str:
    """A session that "me" holds; of a store whose sessions may end before they are acquired."""
    while True:
        name = new_id()
        await store.create(name, b"r")
        if await store.acquire(name, "me") is not None:
            return name


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110  # no store tells
            await asyncio.sleep(0.01)


def test_a_record_is_read_as_it_was_stored_and_unknown_ones_are_none(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec) as store:
            name, record = new_id(), bytes(range(256))
            end = await store.create(name, record)
            stored = await store.read(name)
            assert stored is not None
            assert stored.expires_at == pytest.approx(end, abs=0.01)
            assert (stored.record, stored.is_held) == (record, False)
            assert stored.expires_at == pytest.approx(time.time() + LIMITS.ttl_seconds, abs=5)
            assert await store.read("other") is await store.acquire("other", "me") is None
            assert not await store.renew("other", "me")
            assert not await store.release("other", "me", b"x")
            assert not await store.delete("other")

    asyncio.run(scenario())


def test_a_held_session_is_busy_for_others_until_it_is_released_with_or_without_a_record(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec) as store:
            name = new_id()
            await store.create(name, b"one")
            assert await store.acquire(name, "me") == b"one"
            with pytest.raises(SessionBusy, match=name):
                await store.acquire(name, "you")
            assert not await store.release(name, "you", b"yours")
            assert (await store.read(name)).is_held  # type: ignore[union-attr]
            assert await store.release(name, "me", b"two")
            assert not await store.release(name, "me", b"again")
            assert await store.acquire(name, "you") == b"two"
            assert await store.release(name, "you", None)
            assert await store.acquire(name, "me") == b"two"

    asyncio.run(scenario())


def test_of_many_who_want_a_session_at_once_through_two_stores_exactly_one_gets_it(shared_spec: str) -> None:
    async def scenario() -> None:
        async with opened(shared_spec) as one, opened(shared_spec) as other:
            name = new_id()
            await one.create(name, b"r")
            takers = [store.acquire(name, f"{index}") for index in range(8) for store in (one, other)]
            taken = await asyncio.gather(*takers, return_exceptions=True)
            assert [result for result in taken if result == b"r"] == [b"r"]
            assert sum(isinstance(result, SessionBusy) for result in taken) == 15

    asyncio.run(scenario())


def test_a_lease_that_is_not_renewed_ends_and_its_holder_can_change_nothing_once_another_has_it(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(60, 1000, lease_seconds=SHORT)) as store:
            name = new_id()
            await store.create(name, b"one")
            await store.acquire(name, "dead")

            async def can_take() -> bool:
                with contextlib.suppress(SessionBusy):
                    return await store.acquire(name, "me") == b"one"
                return False

            await until(can_take)
            assert not await store.renew(name, "dead")
            assert not await store.release(name, "dead", b"late")
            assert await store.release(name, "me", b"two")

    asyncio.run(scenario())


def test_a_holder_whose_lease_ran_out_unnoticed_may_still_keep_his_turn(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(60, 1000, lease_seconds=SHORT)) as store:
            name = new_id()
            await store.create(name, b"one")
            await store.acquire(name, "slow")

            async def is_free() -> bool:
                return not (await store.read(name)).is_held  # type: ignore[union-attr]

            await until(is_free)
            assert await store.renew(name, "slow")
            await until(is_free)
            assert await store.release(name, "slow", b"two")
            assert (await store.read(name)).record == b"two"  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_a_session_ends_by_itself_after_its_last_use_but_not_while_it_is_held(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(SHORT, 1000, lease_seconds=60)) as store:
            name, held = new_id(), await held_session(store)
            await store.create(name, b"r")

            async def is_gone() -> bool:
                return await store.read(name) is None

            await until(is_gone)
            assert await store.acquire(name, "me") is None
            assert not await store.delete(name)
            assert await store.renew(held, "me")
            assert (await store.read(held)).expires_at > time.time() + 30  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_every_turn_begins_the_time_to_live_anew_and_a_look_does_not(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec) as store:
            name = new_id()
            await store.create(name, b"r")
            ends = []
            for _ in range(2):
                await asyncio.sleep(0.01)
                ends.append((await store.read(name)).expires_at)  # type: ignore[union-attr]
            await store.acquire(name, "me")
            await store.release(name, "me", b"s")
            ends.append((await store.read(name)).expires_at)  # type: ignore[union-attr]
            assert ends[0] == pytest.approx(ends[1], abs=0.002)
            assert ends[2] > ends[1] + 0.005

    asyncio.run(scenario())


def test_a_full_store_takes_no_more_until_a_session_is_deleted_or_ends(tmp_path: Path, spec: str) -> None:
    async def scenario(spec: str) -> None:
        async with opened(spec, StoreLimits(SHORT, max_sessions=2, lease_seconds=60)) as store:
            first, _ = await held_session(store), await held_session(store)  # they do not end while we look
            with pytest.raises(Unavailable, match="2 sessions are kept"):
                await store.create(new_id(), b"r")
            assert await store.delete(first)
            await store.create(new_id(), b"r")

            async def has_room() -> bool:
                with contextlib.suppress(Unavailable):
                    await store.create(new_id(), b"r")
                    return True
                return False

            await until(has_room)

    if spec.startswith("redis"):
        with running_redis(tmp_path) as url:  # one that nobody else counts in
            asyncio.run(scenario(url))
    else:
        asyncio.run(scenario(spec))


def test_a_session_that_is_deleted_while_it_is_held_stays_deleted(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec) as store:
            name = new_id()
            await store.create(name, b"r")
            await store.acquire(name, "me")
            assert await store.delete(name)
            assert not await store.renew(name, "me")
            assert not await store.release(name, "me", b"s")
            assert await store.read(name) is None

    asyncio.run(scenario())


def test_a_file_outlives_its_gateway_and_one_of_another_layout_is_refused(tmp_path: Path) -> None:
    spec = f"sqlite://{tmp_path}/sessions.db"

    async def create() -> None:
        async with opened(spec) as store:
            await store.create("s", b"r")

    async def read() -> None:
        async with opened(spec) as store:
            assert (await store.read("s")).record == b"r"  # type: ignore[union-attr]

    asyncio.run(create())
    assert (tmp_path / "sessions.db").stat().st_mode & 0o777 == 0o600
    asyncio.run(read())
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions.db")) as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(ConfigurationError, match="layout is number 7, this gateway knows up to 2"):
        open_store(spec, LIMITS)
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        open_store(f"sqlite://{tmp_path}/no/such/folder.db", LIMITS)


def test_the_event_loop_goes_on_while_another_gateway_writes_to_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(f"sqlite://{tmp_path}/sessions.db") as store:
            with contextlib.closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                creating = asyncio.create_task(store.create("s", b"r"))
                for _ in range(20):
                    await asyncio.sleep(0.001)
                assert not creating.done()
                other.execute("COMMIT")
            await asyncio.wait_for(creating, 10)

    asyncio.run(scenario())


def test_without_the_client_library_the_setting_is_refused_with_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigurationError, match=r"redis://far:6379/0 needs .* pip install 'redis>=8,<9'"):
        open_store("redis://me:hunter2@far:6379/0", LIMITS)


def test_a_server_that_is_away_or_refuses_is_unavailable_and_its_password_is_not_told(tmp_path: Path) -> None:
    async def scenario(url: str, message: str) -> None:
        async with opened(url) as store:
            with pytest.raises(Unavailable, match=message) as caught:
                await store.create("s", b"r")
            assert "hunter2" not in str(caught.value)

    away = f"redis://me:hunter2@127.0.0.1:{free_port()}/0"
    asyncio.run(scenario(away, r"the session store redis://127\.0\.0\.1:\d+/0 does not answer"))
    with running_redis(tmp_path, password="other") as url:
        asyncio.run(scenario(url.replace("other", "hunter2"), "does not answer"))

        async def with_the_right_one() -> None:
            async with opened(url) as store:
                await store.create("s", b"r")

        asyncio.run(with_the_right_one())
