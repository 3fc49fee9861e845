"""Holding a session while a turn runs: acquired, renewed in time, released in every case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator

from gateway.sessions.record import Session
from gateway.sessions.stores import SessionStore
from saguaro.errors import SaguaroError, SessionNotFound

logger = logging.getLogger(__name__)

_RENEWALS_A_LEASE = 3  # one that is late does not lose it


class Hold:
    """A session that is ours alone. What it becomes is kept by `keep`; without that it stays as it was."""

    def __init__(self, store: SessionStore, session_id: str, holder: str, session: Session) -> None:
        self.session = session
        self._store = store
        self._session_id = session_id
        self._holder = holder
        self.is_over = False

    async def keep(self, session: Session) -> None:
        """The end of the turn, and of the hold. Raises SessionNotFound where the session was deleted meanwhile."""
        if not await self._store.release(self._session_id, self._holder, session.to_bytes()):
            raise SessionNotFound(
                f"session {self._session_id} was deleted, or taken by another turn, while this turn ran; "
                "the turn is not kept"
            )
        self.is_over = True


@contextlib.asynccontextmanager
async def held(store: SessionStore, session_id: str) -> AsyncIterator[Hold]:
    """Raises SessionNotFound and SessionBusy."""
    holder, hold = secrets.token_hex(8), None
    try:
        record = await store.acquire(session_id, holder)
        if record is None:
            raise not_found(session_id)
        hold = Hold(store, session_id, holder, Session.from_bytes(record))
        renewing = asyncio.create_task(_renew(store, session_id, holder))
        try:
            yield hold
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
    finally:
        # Also where the call was cancelled in the middle of acquiring: no harm if it had not come to that.
        if hold is None or not hold.is_over:
            with contextlib.suppress(SaguaroError):
                await asyncio.shield(store.release(session_id, holder, None))


def not_found(session_id: str) -> SessionNotFound:
    """What is said of an unknown session."""
    return SessionNotFound(f'no session "{session_id}" here; it was deleted, or unused for too long, or never was')


async def _renew(store: SessionStore, session_id: str, holder: str) -> None:
    while True:
        await asyncio.sleep(store.lease_seconds / _RENEWALS_A_LEASE)
        try:
            if not await store.renew(session_id, holder):
                return  # the end of the turn will say so
        except Exception as error:  # noqa: BLE001  # whatever it is, the next try may succeed
            logger.warning("session %s is not renewed yet: %r", session_id, error)
