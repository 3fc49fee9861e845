"""How requests end at one verifier, and whether it should have more: one that fails fast looks idle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

_CONVICTIONS = 3  # that put it out
_FAILURES = 3  # that are told
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 120.0


class Conduct:
    """A verifier fails at a request, and is convicted of it if another one does it: a request that fails everywhere is
    at fault itself. What is done well wipes out what was not.

    Convicted of some different requests in succession it is out: for a pause that doubles from one time to the next,
    with some chance in it, so that gateways do not come back together. Then it gets one request; done well, it is in
    again, else it is out for longer. Requests count by their ids, choices of one and its resumptions as one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: set[str] = set()  # since the last success; as many as matter
        self._convicted: set[str] = set()
        self._out_until: float | None = None  # None while it is in
        self._why_out = ""
        self._pause = 0.0
        self._num_probes = 0

    @property
    def is_in(self) -> bool:
        """Whether the next request may go there: as any, or as the one that tries it."""
        return self._out_until is None or (self._clock() >= self._out_until and self._num_probes == 0)

    @property
    def is_doubtful(self) -> bool:
        """Whether the last request there failed."""
        return bool(self._failed)

    @property
    def complaint(self) -> str:
        """What is to be said against it, as the end of a sentence; "" for nothing."""
        if self._out_until is not None:
            left = self._out_until - self._clock()
            return f"{self._why_out}; it is tried again {f'in {left:.0f} s' if left > 0 else 'now'}"
        if len(self._failed) >= _FAILURES:
            return f"failed the last {len(self._failed)} requests or more by a fault of its own or theirs"
        return ""

    def failed(self, request_id: str) -> None:
        """A request failed there."""
        if len(self._failed) < _FAILURES:
            self._failed.add(_origin(request_id))

    def convict(self, request_id: str) -> None:
        """It failed there and went on elsewhere."""
        if self._out_until is not None:
            if self._clock() >= self._out_until:  # it was tried
                self.put_out(self._why_out)
            return
        self._convicted.add(_origin(request_id))
        if len(self._convicted) >= _CONVICTIONS:
            self.put_out(f"failed {len(self._convicted)} requests in succession that others did")

    def put_out(self, why: str) -> None:
        """No requests for a pause."""
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self._out_until = self._clock() + self._pause * random.uniform(0.75, 1.25)
        self._why_out = why
        self._convicted.clear()

    def succeeded(self) -> None:
        """A request ended well there. One that began before it was put out proves nothing."""
        if self._out_until is None or self._clock() >= self._out_until:
            self.forgive()

    def forgive(self) -> None:
        """As new: it was restarted, or did well."""
        self._failed.clear()
        self._convicted.clear()
        self._out_until, self._pause = None, 0.0

    def begun(self) -> bool:
        """A request goes there; whether it is the one that tries it. Then `probed` must be called when it has ended."""
        is_probe = self._out_until is not None
        self._num_probes += is_probe
        return is_probe

    def probed(self) -> None:
        """The request that tries it has ended, in whatever way."""
        self._num_probes -= 1


def _origin(request_id: str) -> str:
    return request_id.partition("~")[0].partition("/")[0]
