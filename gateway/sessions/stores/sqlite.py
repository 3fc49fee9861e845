"""Sessions in SQLite: in memory, or in a file that several gateways of one machine share.

One thread of its own makes all calls, so the event loop never waits for a disk. A file is in WAL mode: readers do not
wait for the writer, and a gateway that is killed loses nothing that was said to be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gateway.sessions.stores.protocol import StoredSession, StoreLimits, busy, full
from saguaro.errors import ConfigurationError, SessionBusy, Unavailable

Result = TypeVar("Result")

IN_MEMORY = ":memory:"
_LOCK_SECONDS = 5.0  # another gateway's transaction takes milliseconds
_LAYOUT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    session_id TEXT PRIMARY KEY, record BLOB NOT NULL, expires_at REAL NOT NULL, holder TEXT, held_until REAL NOT NULL,
    owner TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expires_at);
CREATE INDEX IF NOT EXISTS sessions_by_owner ON sessions (owner, expires_at, length(record));
"""
# Layout 1 knew owners from records alone.
_FROM_LAYOUT_1 = """
ALTER TABLE sessions ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE sessions SET owner = coalesce(json_extract(CAST(record AS TEXT), '$.owner'), '');
"""


class SqliteStore:
    """See `SessionStore`. `path` is a file, or IN_MEMORY; ConfigurationError where it cannot be opened."""

    def __init__(self, path: str, limits: StoreLimits, *, clock: Callable[[], float] = time.time) -> None:
        self.lease_seconds = limits.lease_seconds
        self._limits = limits
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "sessions")
        try:
            self._database = self._thread.submit(_opened, path).result()
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown()
            raise ConfigurationError(f"the session store {path} cannot be opened: {error}") from None

    async def create(self, session_id: str, record: bytes, owner: str = "") -> float:
        """When it will be forgotten. Raises Unavailable for a full store, InvalidRequest for a full owner."""
        return await self._run(lambda: self._create(session_id, record, owner))

    async def read(self, session_id: str) -> StoredSession | None:
        """None for an unknown session."""
        return await self._run(lambda: self._read(session_id))

    async def acquire(self, session_id: str, holder: str) -> bytes | None:
        """The record, now held; None for an unknown session. Raises SessionBusy."""
        return await self._run(lambda: self._acquire(session_id, holder))

    async def renew(self, session_id: str, holder: str) -> bool:
        """Begin the lease anew; False where the hold was lost."""
        return await self._run(lambda: self._renew(session_id, holder))

    async def release(self, session_id: str, holder: str, record: bytes | None) -> bool:
        """End the hold; False where it was lost."""
        return await self._run(lambda: self._release(session_id, holder, record))

    async def delete(self, session_id: str) -> bool:
        """Forget it; False for an unknown session."""
        return await self._run(lambda: self._delete(session_id))

    async def close(self) -> None:
        """Calls that were made before are finished first."""
        await self._run(self._database.close)
        self._thread.shutdown()

    async def _run(self, call: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except sqlite3.Error as error:
            raise Unavailable(f"the session store does not answer: {error}") from None

    # --- on the store's thread ----------------------------------------------------------------------------------------

    def _create(self, session_id: str, record: bytes, owner: str) -> float:
        now = self._clock()
        end = now + self._limits.ttl_seconds
        with self._transaction():
            self._database.execute("DELETE FROM sessions WHERE expires_at <= ?", (now,))
            (count,) = self._database.execute("SELECT count(*) FROM sessions").fetchone()
            if count >= self._limits.max_sessions:
                raise Unavailable(full(self._limits.max_sessions))
            self._limits.check_owner(owner, *self._owned(owner, now))
            self._database.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, NULL, 0, ?)", (session_id, record, end, owner)
            )
        return end

    def _owned(self, owner: str, now: float) -> tuple[int, int]:
        """The owner's sessions, and the bytes of their records."""
        return self._database.execute(  # type: ignore[no-any-return]
            "SELECT count(*), coalesce(sum(length(record)), 0) FROM sessions WHERE owner = ? AND expires_at > ?",
            (owner, now),
        ).fetchone()

    def _read(self, session_id: str) -> StoredSession | None:
        now = self._clock()
        row = self._database.execute(
            "SELECT record, expires_at, held_until FROM sessions WHERE session_id = ? AND expires_at > ?",
            (session_id, now),
        ).fetchone()
        return None if row is None else StoredSession(row[0], row[1], is_held=row[2] > now)

    def _acquire(self, session_id: str, holder: str) -> bytes | None:
        with self._transaction():
            stored = self._read(session_id)
            if stored is None:
                return None
            if stored.is_held:
                raise SessionBusy(busy(session_id))
            (owner,) = self._database.execute(
                "SELECT owner FROM sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
            self._limits.check_owner(owner, None, self._owned(owner, self._clock())[1])
            self._database.execute("UPDATE sessions SET holder = ? WHERE session_id = ?", (holder, session_id))
            self._extend(session_id, holder)
            return stored.record

    def _renew(self, session_id: str, holder: str) -> bool:
        with self._transaction():
            return self._extend(session_id, holder)

    def _extend(self, session_id: str, holder: str) -> bool:
        now, lease = self._clock(), self._limits.lease_seconds
        changed = self._database.execute(
            "UPDATE sessions SET held_until = ?, expires_at = ? WHERE session_id = ? AND holder = ?",
            (now + lease, now + max(self._limits.ttl_seconds, lease), session_id, holder),
        )
        return changed.rowcount == 1

    def _release(self, session_id: str, holder: str, record: bytes | None) -> bool:
        with self._transaction():
            changed = self._database.execute(
                "UPDATE sessions SET record = coalesce(?, record), holder = NULL, held_until = 0, expires_at = ? "
                "WHERE session_id = ? AND holder = ?",
                (record, self._clock() + self._limits.ttl_seconds, session_id, holder),
            )
            return changed.rowcount == 1

    def _delete(self, session_id: str) -> bool:
        with self._transaction():
            changed = self._database.execute(
                "DELETE FROM sessions WHERE session_id = ? AND expires_at > ?", (session_id, self._clock())
            )
            return changed.rowcount == 1

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE takes the write lock before the first look, so two gateways cannot both find a session free.
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _opened(path: str) -> sqlite3.Connection:
    if path != IN_MEMORY:
        Path(path).touch(mode=0o600)  # what users said is nobody else's; SQLite's other files take the same mode
    database = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine, unlike one of the gateway, may cost the last turns; that spares a sync a turn.
        database.execute("PRAGMA synchronous = NORMAL")
        (layout,) = database.execute("PRAGMA user_version").fetchone()
        if layout not in (0, 1, _LAYOUT):
            raise sqlite3.DatabaseError(f"its layout is number {layout}, this gateway knows up to {_LAYOUT}")
        if layout == 1:
            _upgrade(database)
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version = {_LAYOUT}")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _upgrade(database: sqlite3.Connection) -> None:
    """From layout 1; another gateway may do it at the same time."""
    database.execute("BEGIN IMMEDIATE")
    if database.execute("PRAGMA user_version").fetchone() == (1,):
        for statement in _FROM_LAYOUT_1.strip().splitlines():
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_LAYOUT}")
    database.execute("COMMIT")
