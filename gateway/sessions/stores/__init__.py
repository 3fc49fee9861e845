"""Where sessions are kept: one protocol, and a store for each kind of the setting `session_store`."""

from __future__ import annotations

from gateway.sessions.stores.protocol import SessionStore, StoredSession, StoreLimits
from gateway.sessions.stores.redis import RedisStore
from gateway.sessions.stores.sqlite import IN_MEMORY, SqliteStore

__all__ = ["SessionStore", "StoreLimits", "StoredSession", "open_store"]

_FILE = "sqlite://"


def open_store(spec: str, limits: StoreLimits) -> SessionStore:
    """`spec`: memory, sqlite:///absolute/path or redis://host:port/0. ConfigurationError where it cannot open."""
    if spec.startswith(_FILE):
        return SqliteStore(spec.removeprefix(_FILE), limits)
    return SqliteStore(IN_MEMORY, limits) if spec == "memory" else RedisStore(spec, limits)
