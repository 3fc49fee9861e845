"""How long the way to the speculator and back takes, from when its answers come."""

from __future__ import annotations

_CREEP = 0.01


class LinkTime:
    """The least round trip seen lately: what queues, here or there, only ever makes one longer.

    It creeps up towards longer ones, so that a way that has become longer is noticed within some hundred answers.
    """

    def __init__(self) -> None:
        self._ns: float | None = None

    def observe(self, round_trip_ns: int) -> None:
        """An answer came that long after its question, the work on it left out."""
        sample = max(float(round_trip_ns), 0.0)
        if self._ns is None or sample < self._ns:
            self._ns = sample
        else:
            self._ns += (sample - self._ns) * _CREEP

    @property
    def round_trip_ns(self) -> int:
        """Both ways together; 0 before anything is known."""
        return int(self._ns or 0)
