"""Looks, ever more rarely, whether speculation pays by now where plain decoding is the plan."""

from __future__ import annotations

_FIRST_INTERVAL = 256  # steps of plain decoding before the first look
_LONGEST_INTERVAL = 4096
_STEPS = 8  # of a look, once the speculator answers
_STEPS_TO_REST = 64  # of plain decoding; a plan that wavers does not rest
_MOST_STEPS = 32  # of a look: until then it has computed the prompts, or is too slow anyway


class Probe:
    """When to look. Every look that changed nothing doubles the time to the next."""

    def __init__(self) -> None:
        self.is_on = self._was_answered = False
        self._num_steps = self._num_answered = 0
        self.look_soon()

    def look_soon(self) -> None:
        """Speculation was the plan until now, or has never been tried."""
        self._interval = self._steps_to_next = _FIRST_INTERVAL

    def look_now(self) -> None:
        """Something changed that was not measured: the speculator came."""
        self._interval, self._steps_to_next = _FIRST_INTERVAL, 1

    def next_step(self) -> bool:
        """Count one step of plain decoding or of a look. Whether this step is part of a look."""
        if not self.is_on:
            self._steps_to_next -= 1
            if self._steps_to_next > 0:
                return False
            self.is_on, self._was_answered = True, False
            self._num_steps = self._num_answered = 0
            return True
        self._num_steps += 1
        self._num_answered += self._was_answered
        if self._num_answered >= _STEPS or self._num_steps >= _MOST_STEPS:
            self.is_on = False
            self._interval = min(2 * self._interval, _LONGEST_INTERVAL)
            self._steps_to_next = self._interval
        return self.is_on

    def answers(self) -> None:
        """The speculator had something for a lookup of this look."""
        self._was_answered = True

    @property
    def is_resting(self) -> bool:
        """Plain decoding has been the plan for long enough that the speculator need not be told how it goes."""
        return not self.is_on and self._interval - self._steps_to_next >= _STEPS_TO_REST

    @property
    def is_warming(self) -> bool:
        """The look goes on, but the speculator still computes the prompts: what it lacks says nothing."""
        return self.is_on and not self._was_answered
