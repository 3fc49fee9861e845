"""How long an emulated forward takes, and what goes wrong with it."""

from __future__ import annotations

import os
import time

import numpy as np

from saguaro.emulation.profile import Faults, ForwardTime

CRASH_EXIT_CODE = 70
# The system wakes sleepers about this late; the rest of the wait is spent awake, for yielding would be a sleep again.
_SPIN_NS = 100_000
_LAUNCH_SECONDS = 0.0002


class Pace:
    """Makes each forward last as long as its number of rows says. The wait is slept: it costs no processor."""

    def __init__(self, law: ForwardTime, faults: Faults) -> None:
        self._law = law
        self._faults = faults
        self._random = np.random.default_rng(faults.jitter_seed)
        self._num_forwards = 0

    def launch(self) -> None:
        """As a device does that was given its work, leaves the interpreter to other threads; no part of the pace."""
        if self._law.base_ms:
            time.sleep(_LAUNCH_SECONDS)

    def finish(self, started_ns: int, num_rows: int) -> None:
        """Returns when the forward of `num_rows` tokens that began at `started_ns` (monotonic clock) is due.

        What was computed since its begin is part of its time. In the forward that the profile names, the process dies.
        """
        self._num_forwards += 1
        if self._num_forwards == self._faults.crash_at:
            os._exit(CRASH_EXIT_CODE)
        _sleep_until(started_ns + int(self._milliseconds(num_rows) * 1e6))

    def _milliseconds(self, num_rows: int) -> float:
        milliseconds = self._law.milliseconds(num_rows)
        sigma = self._faults.jitter_sigma
        if sigma:
            milliseconds *= self._random.lognormal(-sigma * sigma / 2, sigma)
        if self._faults.stall_every is not None and self._num_forwards % self._faults.stall_every == 0:
            milliseconds += self._faults.stall_ms
        return milliseconds


def _sleep_until(deadline_ns: int) -> None:
    remaining_ns = deadline_ns - time.monotonic_ns() - _SPIN_NS
    if remaining_ns > 0:
        time.sleep(remaining_ns / 1e9)
    while time.monotonic_ns() < deadline_ns:
        pass
