"""One key cannot fill the session store for all: of each, a number of sessions and of bytes, in every store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sqlite3
from pathlib import Path

import pytest

from gateway.guard import Guard
from gateway.sessions import StoreLimits
from saguaro.errors import InvalidRequest
from saguaro.keys import KeyRecord, hash_of
from tests.unit.gateway.test_guard import Caller, bearer, in_house
from tests.unit.gateway.test_session_stores import opened

SHORT = 0.05  # seconds


def name() -> str:
    return secrets.token_hex(8)


def test_an_owner_with_as_many_sessions_as_it_may_have_begins_no_more_and_others_do(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(60, 1000, max_sessions_per_owner=2)) as store:
            ann, bob, first = name(), name(), name()
            await store.create(first, b"r", ann)
            await store.create(name(), b"r", ann)
            with pytest.raises(InvalidRequest, match=f'key "{ann}" has 2 sessions; it may have at most 2') as refused:
                await store.create(name(), b"r", ann)
            assert refused.value.field == "session_id"
            for _ in range(3):
                await store.create(name(), b"r")  # of nobody: a gateway without keys
            await store.create(name(), b"r", bob)
            assert await store.acquire(first, "me") == b"r"  # to go on with one is no new one
            await store.delete(first)
            await store.create(name(), b"r", ann)

    asyncio.run(scenario())


def test_an_owner_s_sessions_that_ended_count_no_more(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(SHORT, 1000, max_sessions_per_owner=1)) as store:
            ann = name()
            await store.create(name(), b"r", ann)
            async with asyncio.timeout(10):
                while True:
                    with contextlib.suppress(InvalidRequest):
                        await store.create(name(), b"r", ann)
                        return
                    await asyncio.sleep(SHORT)

    asyncio.run(scenario())


def test_an_owner_with_as_many_bytes_as_it_may_have_begins_no_session_and_no_turn(spec: str) -> None:
    async def scenario() -> None:
        async with opened(spec, StoreLimits(60, 1000, max_bytes_per_owner=100)) as store:
            ann, bob, first, second = name(), name(), name(), name()
            await store.create(first, b"r" * 10, ann)
            await store.create(second, b"r" * 10, ann)
            assert await store.acquire(first, "me") is not None
            assert await store.release(first, "me", b"r" * 90)  # a turn that runs is kept
            for refused in (store.create(name(), b"r", ann), store.acquire(second, "me")):
                with pytest.raises(InvalidRequest, match="has sessions of 100 bytes; it may have at most 100"):
                    await refused
            stored = await store.read(second)
            assert stored is not None
            assert not stored.is_held
            await store.create(name(), b"r" * 99, bob)
            await store.delete(first)
            assert await store.acquire(second, "me") is not None

    asyncio.run(scenario())


def test_a_file_of_the_layout_before_keeps_its_sessions_and_learns_their_owners(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database:
        database.execute(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, record BLOB NOT NULL, expires_at REAL NOT NULL, "
            "holder TEXT, held_until REAL NOT NULL) WITHOUT ROWID"
        )
        record = json.dumps({"owner": "ann"}).encode()
        database.execute("INSERT INTO sessions VALUES ('old', ?, 1e12, NULL, 0)", (record,))
        database.execute("PRAGMA user_version = 1")
        database.commit()

    async def scenario() -> None:
        async with opened(f"sqlite://{tmp_path}/s.db", StoreLimits(60, 10, max_sessions_per_owner=1)) as store:
            assert await store.acquire("old", "me") == record
            with pytest.raises(InvalidRequest, match='key "ann" has 1 sessions'):
                await store.create("new", b"r", "ann")

    asyncio.run(scenario())


def test_over_http_a_key_s_limit_is_a_400_and_another_key_begins_its_session(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        statuses = [
            (await caller.http.post("/v1/sessions", json={}, headers=dict(bearer(key)))).status_code
            for key in ("ann", "ann", "ann", "bob")
        ]
        assert statuses == [200, 200, 400, 200]

    guard = Guard([KeyRecord(name=key, sha256=hash_of(key)) for key in ("ann", "bob")])
    in_house(text_folder, guard, work, session_limits=StoreLimits(60, 16, max_sessions_per_owner=2))
