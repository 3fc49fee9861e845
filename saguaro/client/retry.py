"""When a call is tried again: only where the service was unavailable, and only before the first token.

gRPC's own retries end with the first message of a stream, which says only that the request was admitted, and know
nothing of RetryInfo; so these are ours.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import grpc

from saguaro.errors import SaguaroError, Unavailable
from saguaro.wire.status import error_of


@dataclass(frozen=True, slots=True)
class Retry:
    """`max_attempts` counts the first one. Waits begin at `first_wait_seconds`, double, and are lengthened at random by
    up to a half, so that clients do not come back together; a service that says when to come back is given at least
    that time. Where it would be over `max_wait_seconds`, the error is raised at once.
    """

    max_attempts: int = 3
    first_wait_seconds: float = 0.2
    max_wait_seconds: float = 10.0


NO_RETRY = Retry(max_attempts=1)


class Attempts:
    """The attempts of one call to `peer` ("the gateway at ..."), all within `timeout_seconds`."""

    def __init__(self, retry: Retry, peer: str, timeout_seconds: float | None) -> None:
        self._retry = retry
        self._peer = peer
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._num_failed = 0
        self._is_last = False

    @property
    def timeout_seconds(self) -> float | None:
        """What is left for the next attempt."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def give_up(self) -> None:
        """No attempt follows the one that runs: part of its answer is out."""
        self._is_last = True

    def wait_after(self, error: grpc.RpcError) -> float:
        """Seconds to wait before the next attempt. Raises what `error` stands for where there is to be none."""
        self._num_failed += 1
        typed = error_of(error, self._peer)
        wait = self._wait_seconds(typed)
        call: Any = error
        # The tree has one error for services that cannot serve and calls that were cancelled on the way.
        is_worth_it = isinstance(typed, Unavailable) and call.code() is grpc.StatusCode.UNAVAILABLE
        remaining = self.timeout_seconds
        if (
            not is_worth_it
            or self._is_last
            or self._num_failed >= self._retry.max_attempts
            or wait > self._retry.max_wait_seconds
            or (remaining is not None and wait >= remaining)
        ):
            raise typed from None
        return wait

    def _wait_seconds(self, error: SaguaroError) -> float:
        asked = error.retry_after_seconds if isinstance(error, Unavailable) else 0.0
        ours = self._retry.first_wait_seconds * 2.0 ** (self._num_failed - 1)
        wait: float = max(asked, ours)
        return wait * random.uniform(1.0, 1.5)
