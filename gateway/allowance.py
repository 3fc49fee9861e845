"""What one API key may use: token buckets for rates, a count for answers at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from saguaro.errors import InvalidRequest, RateLimited
from saguaro.keys import KeyLimits

Clock = Callable[[], float]

_BUSY_RETRY_SECONDS = 1.0  # nobody knows when an answer ends


class Bucket:
    """A token bucket that holds a minute's worth and fills evenly. It may be overdrawn: debt is paid by waiting."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60
        self._clock = clock
        self._level, self._looked_at = self._capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Until it holds `amount`; 0 where it does."""
        return max(amount - self._filled(), 0.0) / self._per_second

    def spend(self, amount: float) -> None:
        """Take out, below zero too."""
        self._level = self._filled() - amount

    def _filled(self) -> float:
        now = self._clock()
        self._level = min(self._level + (now - self._looked_at) * self._per_second, self._capacity)
        self._looked_at = now
        return self._level


class Allowance:
    """The limits of one key, and how much of them is used.

    Tokens are counted as they are used, since nobody knows how long an answer will be: an answer begins while the
    bucket holds one token, and is never cut for it. So the rate holds over time; a burst may exceed it by what the
    answers that run at once still say.
    """

    def __init__(self, name: str, limits: KeyLimits, clock: Clock = time.monotonic) -> None:
        self._name = name
        self._limits = limits
        self._requests = _bucket(limits.requests_per_minute, clock)
        self._tokens = _bucket(limits.tokens_per_minute, clock)
        self._num_running = 0

    def take_request(self) -> None:
        """One call of any kind. Raises RateLimited."""
        if self._requests is None:
            return
        if wait := self._requests.seconds_until(1):
            raise self._over(f"{self._limits.requests_per_minute} requests a minute", wait)
        self._requests.spend(1)

    @contextlib.contextmanager
    def answering(self, num_answers: int) -> Iterator[None]:
        """While so many answers run. Raises RateLimited, or InvalidRequest where they can never run at once."""
        most = self._limits.concurrent_answers
        if most is not None and num_answers > most:
            raise InvalidRequest("n", f"n is {num_answers}; this key may have {most} answers at once")
        if most is not None and self._num_running + num_answers > most:
            raise self._over(f"{most} answers at once, and {self._num_running} run", _BUSY_RETRY_SECONDS)
        if self._tokens is not None and (wait := self._tokens.seconds_until(1)):
            raise self._over(f"{self._limits.tokens_per_minute} tokens a minute", wait)
        self._num_running += num_answers
        try:
            yield
        finally:
            self._num_running -= num_answers

    def spend_tokens(self, num_tokens: int) -> None:
        """Tokens of a prompt, or of an answer."""
        if self._tokens is not None:
            self._tokens.spend(num_tokens)

    def _over(self, limit: str, wait_seconds: float) -> RateLimited:
        return RateLimited(f'key "{self._name}" may have {limit}; try again in {wait_seconds:.3g} s', wait_seconds)


def _bucket(per_minute: int | None, clock: Clock) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, clock)
