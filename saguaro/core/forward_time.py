"""How long a forward takes by its number of rows, as measured."""

from __future__ import annotations

from bisect import bisect_left

_DECAY = 0.15
_STALL = 2.0
_FORGET = 0.99


class ForwardTime:
    """Decayed mean times at the row counts that were seen, straight lines between them.

    Below the smallest and above the largest seen count the time of that count is assumed: an optimist's guess, which
    the first forward there corrects. 0 before anything was seen.
    """

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._ns: list[float] = []

    def observe(self, num_rows: int, took_ns: int) -> None:
        """A forward of `num_rows` took that long; one that stalled counts as twice the usual time."""
        place = bisect_left(self._rows, num_rows)
        if place < len(self._rows) and self._rows[place] == num_rows:
            self._ns[place] += (min(took_ns, _STALL * self._ns[place]) - self._ns[place]) * _DECAY
        else:
            self._rows.insert(place, num_rows)
            self._ns.insert(place, float(took_ns))

    def doubt(self, num_rows: float) -> None:
        """A forward of `num_rows` was judged too slow to be tried: trust that a little less, so that it is one day."""
        if self._rows:
            place = min(bisect_left(self._rows, num_rows), len(self._rows) - 1)
            self._ns[place] *= _FORGET

    def expect_ns(self, num_rows: float) -> float:
        """Expected time of a forward of `num_rows`."""
        if not self._rows:
            return 0.0
        place = bisect_left(self._rows, num_rows)
        if place == 0:
            return self._ns[0]
        if place == len(self._rows):
            return self._ns[-1]
        left, right = self._rows[place - 1], self._rows[place]
        share = (num_rows - left) / (right - left)
        return self._ns[place - 1] * (1.0 - share) + self._ns[place] * share
