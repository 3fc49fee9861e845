"""How large messages may be that two services send each other: each says in metadata what it takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_KEY = "x-max-message-bytes"


def said_limit(max_message_bytes: int) -> tuple[tuple[str, str], ...]:
    """Metadata by which a service says what it takes."""
    return ((_KEY, str(max_message_bytes)),)


def limit_of(metadata: Iterable[Any] | None, own: int) -> int:
    """The most bytes of a message that both take: `own`, or less where the other one says so."""
    for key, value in metadata or ():
        if key == _KEY and str(value).isdecimal():
            return min(own, int(value))
    return own
