"""How long a sequence waits whose outcome was not in the speculation cache, and when a speculator counts as stalled.

Whether it waits: `planner`. Both are judged by the speculator's silence, not by sequences: whatever it sends, for
whichever sequence, late or in time, says that it lives.
"""

from __future__ import annotations

from dataclasses import dataclass

_SLACK = 3.0  # a just-in-time speculation that takes this many times its usual is not coming
_LEAST_NS = 20_000_000  # below this, scheduling noise decides
_MOST_NS = 1_000_000_000
_DECAY = 0.2
_FIRST_SILENCE_NS = 1_000_000_000
_LONGEST_SILENCE_NS = 64_000_000_000
_LONGEST_STEP_NS = 250_000_000  # more of one step is not counted: it may be ourselves who stood still
_SIGNS_OF_HEALTH = 32  # frames after which a stall is forgiven


@dataclass(slots=True)
class Patience:
    """With one speculator: how long to wait for it, learnt from how long it took, and when to give it up.

    `fixed_ns` overrides the measured time (0 never waits). One writer a field: `heard` may be called from any thread,
    all else from the engine thread.
    """

    fixed_ns: int | None = None
    _usual_ns: float = 0.0
    _silence_ns: int = _FIRST_SILENCE_NS
    _num_heard: int = 0
    _num_seen: int = 0  # of those heard, when something was last owed and not yet answered
    _owes: bool = False
    _silent_ns: int = 0  # since something is owed, by our own steps
    _stepped_at_ns: int = 0
    _num_heard_at_expiry: int | None = None
    _num_heard_at_stall: int | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the last wait was in vain and nothing has come since."""
        return self._num_heard_at_expiry == self._num_heard

    @property
    def wait_ns(self) -> int:
        """Longest wait for the next one; 0 where the speculator is silent."""
        return 0 if self.is_silent else self._longest_wait_ns

    @property
    def _longest_wait_ns(self) -> int:
        if self.fixed_ns is not None:
            return self.fixed_ns
        return int(min(max(self._usual_ns * _SLACK, _LEAST_NS), _MOST_NS)) if self._usual_ns else _MOST_NS

    def heard(self) -> None:
        """Something came from the speculator."""
        self._num_heard += 1

    def asked(self, now_ns: int) -> None:
        """The speculator was told of work that it answers."""
        if not self._owes or self._num_seen != self._num_heard:
            self._owes, self._silent_ns, self._stepped_at_ns = True, 0, now_ns
            self._num_seen = self._num_heard

    def settled(self) -> None:
        """Nothing is owed any more: no sequence is open."""
        self._owes = False

    def arrived(self, took_ns: int) -> None:
        """A just-in-time speculation came after `took_ns`."""
        self._usual_ns += (took_ns - self._usual_ns) * (_DECAY if self._usual_ns else 1.0)

    def expired(self, waited_ns: int) -> None:
        """A wait ended without one. A speculator that lives takes longer than was thought."""
        if self.is_silent:
            return
        self._num_heard_at_expiry = self._num_heard
        if self._usual_ns:
            self._usual_ns += (max(waited_ns, self._usual_ns) - self._usual_ns) * _DECAY

    def take_step(self, now_ns: int) -> bool:
        """Count a step of the verifier; whether the speculator owes answers and has said nothing for too long.

        Then it is as good as gone. Time in which the verifier itself stood still does not count: answers that came
        meanwhile are not yet read.
        """
        self._silent_ns += min(now_ns - self._stepped_at_ns, _LONGEST_STEP_NS)
        self._stepped_at_ns = now_ns
        is_silent = self._owes and self._num_seen == self._num_heard
        return is_silent and self._silent_ns > max(self._silence_ns, self._longest_wait_ns)

    def stalled(self) -> None:
        """It was given up. The next time it has twice as long: it may only be slow."""
        self._silence_ns = min(2 * self._silence_ns, _LONGEST_SILENCE_NS)
        self._num_heard_at_stall = self._num_heard

    def renew(self) -> None:
        """A speculator begins anew."""
        self._owes, self._num_heard_at_expiry = False, None
        if self._num_heard_at_stall is None or self._num_heard - self._num_heard_at_stall >= _SIGNS_OF_HEALTH:
            self._silence_ns = _FIRST_SILENCE_NS
