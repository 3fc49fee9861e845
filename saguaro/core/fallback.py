"""How long a sequence waits whose outcome was not in the speculation cache. Whether it does: `planner`."""

from __future__ import annotations

from dataclasses import dataclass

_SLACK = 3.0  # a just-in-time speculation that takes this many times its usual is not coming
_LEAST_NS = 20_000_000  # below this, scheduling noise decides
_MOST_NS = 1_000_000_000
_DECAY = 0.2
_STRIKES = 3


@dataclass(slots=True)
class JustInTimeBudget:
    """How long to wait for a just-in-time speculation, learnt from how long they took.

    `fixed_ns` overrides the measured time (0 never waits).
    """

    fixed_ns: int | None = None
    _usual_ns: float = 0.0
    _strikes: int = 0

    @property
    def wait_ns(self) -> int:
        """Longest wait for the next one."""
        if self.fixed_ns is not None:
            return self.fixed_ns
        return int(min(max(self._usual_ns * _SLACK, _LEAST_NS), _MOST_NS)) if self._usual_ns else _MOST_NS

    @property
    def is_exhausted(self) -> bool:
        """Whether several waits in a row brought nothing: the speculator is as good as gone."""
        return self._strikes >= _STRIKES

    def arrived(self, took_ns: int) -> None:
        """A just-in-time speculation came after `took_ns`."""
        self._usual_ns += (took_ns - self._usual_ns) * (_DECAY if self._usual_ns else 1.0)
        self._strikes = 0

    def expired(self) -> None:
        """A wait ended without one."""
        self._strikes += 1

    def renew(self) -> None:
        """A speculator begins anew."""
        self._strikes = 0
