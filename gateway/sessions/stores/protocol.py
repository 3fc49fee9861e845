"""What a session store does. It keeps records, bytes that it does not look into, and says who may change one.

A turn *holds* its session: `acquire`, `renew` while it runs, `release` with the new record or with none. A hold ends by
itself after `lease_seconds` without renewal, so that a gateway that died blocks nobody for longer. Its holder may still
release it with a record as long as nobody else has acquired the session since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from saguaro.errors import InvalidRequest

LEASE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """A session ends `ttl_seconds` after its last use, never while it is held; `max_sessions` is of the whole store.

    Of each owner that has a name, `max_sessions_per_owner` are kept, and `max_bytes_per_owner` of records: a turn
    begins while they are not reached, so turns that run at the same time may exceed them by what they add. None: no
    limit.
    """

    ttl_seconds: float
    max_sessions: int
    lease_seconds: float = LEASE_SECONDS
    max_sessions_per_owner: int | None = None
    max_bytes_per_owner: int | None = None

    def check_owner(self, owner: str, num_sessions: int | None, num_bytes: int) -> None:
        """Raises InvalidRequest where the owner's sessions leave no room for a turn, or for one more session.

        Refused, not made room for: the oldest conversation may be the dearest. `num_sessions` None: none is to begin.
        """
        if not owner:
            return
        most, most_bytes = self.max_sessions_per_owner, self.max_bytes_per_owner
        if most is not None and num_sessions is not None and num_sessions >= most:
            raise _used_up(owner, f"has {num_sessions} sessions; it may have at most {most}")
        if most_bytes is not None and num_bytes >= most_bytes:
            raise _used_up(owner, f"has sessions of {num_bytes} bytes; it may have at most {most_bytes}")


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A record, when it will be forgotten (seconds since 1970), and whether a turn holds it."""

    record: bytes
    expires_at: float
    is_held: bool


class SessionStore(Protocol):
    """All of it raises Unavailable where the store cannot be reached."""

    lease_seconds: float

    async def create(self, session_id: str, record: bytes, owner: str = "") -> float:
        """When it will be forgotten, in seconds since 1970. Raises Unavailable where the store is full, and
        InvalidRequest where the owner ("": nobody's) has what it may have.
        """

    async def read(self, session_id: str) -> StoredSession | None:
        """None for an unknown session. To look is no use: it does not delay the end."""

    async def acquire(self, session_id: str, holder: str) -> bytes | None:
        """The record, which `holder` now holds; None for an unknown session. Raises SessionBusy, and InvalidRequest
        where the owner's sessions have as many bytes as they may have.
        """

    async def renew(self, session_id: str, holder: str) -> bool:
        """Begin the lease anew. False where the hold was lost: the session is gone, or another's."""

    async def release(self, session_id: str, holder: str, record: bytes | None) -> bool:
        """End the hold; `record` takes the place of the old one. False, and nothing done, where the hold was lost."""

    async def delete(self, session_id: str) -> bool:
        """Forget it, held or not. False for an unknown session."""

    async def close(self) -> None:
        """Nothing is asked of the store after this."""


def _used_up(owner: str, what: str) -> InvalidRequest:
    return InvalidRequest("session_id", f'key "{owner}" {what}: delete some, or wait until some end')


def full(max_sessions: int) -> str:
    """What a full store says."""
    return (
        f"{max_sessions} sessions are kept, which is all that this gateway keeps; delete some, or wait until some end"
    )


def busy(session_id: str) -> str:
    """What a held session's store says."""
    return f"session {session_id} has a turn running; wait for its end, or cancel it"
