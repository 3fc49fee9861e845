"""How long the engine's step has been in work, and from when on that is no longer slow but hung.

What a forward takes is learned by its number of tokens, since it depends on model and machine. A step is overdue after
ten times that, and never before a floor of some seconds: a busy machine, a long prefill or a first forward is slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMES_THE_USUAL = 10
_FALLING = 0.1  # share of the way from the time learned to a shorter one, each forward
_RISING = 2  # times the time learned, at most: a machine that was suspended teaches nothing
_UNKNOWN_SECONDS = 120.0  # before anything was learned


class StepWatch:
    """Of one engine thread, which alone writes; any thread may ask whether it is overdue."""

    def __init__(self, floor_seconds: float = 5.0, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """No step is overdue before `floor_seconds`."""
        self._floor_ns = int(floor_seconds * 1e9)
        self._clock_ns = clock_ns
        self._usual_ns: dict[int, float] = {}  # by bits of the number of tokens
        self._work: tuple[int, int] | None = None  # when the step or its last forward began, and the forward's tokens

    def begin_step(self) -> None:
        """The thread steps."""
        self._work = (self._clock_ns(), 0)

    def end_step(self) -> None:
        """The thread waits for work."""
        self._work = None

    def begin_forward(self, num_tokens: int) -> int:
        """A forward begins; returns when, for `end_forward`. Outside of a step it is timed, but never overdue."""
        now_ns = self._clock_ns()
        if self._work is not None:
            self._work = (now_ns, num_tokens)
        return now_ns

    def end_forward(self, num_tokens: int, began_ns: int) -> None:
        """The forward ended well: its time is learned."""
        took_ns, size = self._clock_ns() - began_ns, num_tokens.bit_length()
        usual_ns = self._usual_ns.get(size)
        if usual_ns is None:
            self._usual_ns[size] = took_ns
        elif took_ns > usual_ns:
            self._usual_ns[size] = min(took_ns, _RISING * usual_ns)
        else:
            self._usual_ns[size] = usual_ns + (took_ns - usual_ns) * _FALLING

    def allowed_seconds(self, num_tokens: int) -> float:
        """How long a forward of so many tokens, and what follows it in its step, may take.

        Of more tokens than were ever seen: as much longer as they are more.
        """
        size, usual = num_tokens.bit_length(), dict(self._usual_ns)  # a copy: the engine thread adds to it
        if not usual:
            return max(_UNKNOWN_SECONDS, self._floor_ns / 1e9)
        nearest = max((known for known in usual if known <= size), default=min(usual))
        usual_ns = usual[nearest] * (1 << max(size - nearest, 0))
        return max(_TIMES_THE_USUAL * usual_ns, self._floor_ns) / 1e9

    @property
    def overdue_seconds(self) -> float:
        """For how long the step has been in work, where that is more than allowed; 0 where all is well."""
        work = self._work
        if work is None:
            return 0.0
        began_ns, num_tokens = work
        seconds = (self._clock_ns() - began_ns) / 1e9
        return seconds if seconds > self.allowed_seconds(num_tokens) else 0.0
