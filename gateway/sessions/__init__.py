"""Sessions: conversations kept at the gateway. See `sessions` for what a turn is, `stores` for where they are kept."""

from __future__ import annotations

from gateway.sessions.sessions import Sessions
from gateway.sessions.stores import SessionStore, StoreLimits, open_store

__all__ = ["SessionStore", "Sessions", "StoreLimits", "open_store"]
