"""What a call is known by: an id of the service's own, and beside it, for logs, the one that its caller gave.

Callers choose ids for their traces, and may use one for many calls. So nothing is kept under it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

REQUEST_ID_KEY = "x-request-id"
_TRAVELS = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class RequestId:
    """`own` is unique and cannot be guessed. `callers` is "" where none came, or one that cannot travel on as it is."""

    own: str
    callers: str

    @classmethod
    def of(cls, headers: Mapping[str, str | bytes]) -> Self:
        """For a call that comes in with these headers, or metadata."""
        given = headers.get(REQUEST_ID_KEY)
        is_clean = isinstance(given, str) and _TRAVELS.fullmatch(given)
        return cls(secrets.token_hex(16), str(given) if is_clean else "")

    def __str__(self) -> str:
        return f"{self.own} (its caller's: {self.callers})" if self.callers else self.own
