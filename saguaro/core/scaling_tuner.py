"""Chooses C of Saguaro sampling by measured tokens per second.

A smaller C brings more cache hits and fewer acceptances; which of them is worth more depends on the pair, the text and
the machine, and raising hits this way can cost more than it gains. So C is tuned by the only thing that counts, and
starts at 1, where it changes nothing.

Speed drifts by itself (batch, text, load), so a challenger is never compared with an old figure: windows of steps
alternate, champion, challenger, champion, and a challenger's gain is over the champion's windows before and after. A
contest goes on until the mean gain is clearly above or below what a change must bring, by the spread of its own
windows; without a clear winner the champion stays. A loser waits, twice as long each time, so that a bad C costs less
and less. Deterministic: no draws, time comes in as values.
"""

from __future__ import annotations

import math
import statistics

SCALES = (1.0, 0.8, 0.5, 0.2, 0.0)

_WINDOW_STEPS = 32
_SETTLE_STEPS = 4  # at a window's start; they still verify what was drafted with the C before
_LEAST_GAIN = 0.03  # what a change must bring
_SURE_TO_WIN = 3.0  # standard errors of the mean gain above what it must be
_SURE_TO_LOSE = 1.0  # below it; less is asked, because losing wrongly costs a pause only
_FEWEST_TO_WIN = 6  # gains of one contest
_FEWEST_TO_LOSE = 2
_MOST_GAINS = 24  # then the challenger has lost
_FIRST_PAUSE = 32  # windows until a loser is tried again
_LONGEST_PAUSE = 512


class ScalingTuner:
    """Measurements in, C out. One for all sequences that share a draft and a target."""

    def __init__(self) -> None:
        self._champion = SCALES[0]
        self._challenger: float | None = None  # whose contest is on; windows alternate while it is
        self._on_challenger = False
        self._window = _Window()
        self._before = 0.0  # rate of the champion's last window
        self._challenged = 0.0  # rate of the challenger's window since
        self._gains: list[float] = []
        self._pauses = dict.fromkeys(SCALES, _FIRST_PAUSE)
        self._due = dict.fromkeys(SCALES, 0)  # window from which each may challenge
        self._num_windows = 0

    @property
    def scale(self) -> float:
        """C to draft with now."""
        return self._challenger if self._on_challenger and self._challenger is not None else self._champion

    @property
    def champion(self) -> float:
        """The best C so far; `scale` differs from it while another one is tried."""
        return self._champion

    def observe(self, num_tokens: int, took_ns: int) -> None:
        """A step emitted so many tokens and took so long, from the end of the step before it."""
        self._window.add(num_tokens, took_ns)
        if not self._window.is_full:
            return
        rate, self._window = self._window.rate, _Window()
        self._num_windows += 1
        if self._on_challenger:
            self._challenged, self._on_challenger = rate, False
            return
        if self._challenger is not None:
            self._judge(self._challenger, 2.0 * self._challenged / (self._before + rate) - 1.0)
        self._before = rate
        if self._challenger is None:
            self._challenger = self._next_challenger()
        self._on_challenger = self._challenger is not None

    def _judge(self, challenger: float, gain: float) -> None:
        """End the contest if its windows so far suffice."""
        self._gains.append(gain)
        count = len(self._gains)
        if count < _FEWEST_TO_LOSE:
            return
        lead = statistics.mean(self._gains) - _LEAST_GAIN
        error = statistics.stdev(self._gains) / math.sqrt(count)
        has_won = count >= _FEWEST_TO_WIN and lead > _SURE_TO_WIN * error
        has_lost = lead < -_SURE_TO_LOSE * error or count == _MOST_GAINS
        if not (has_won or has_lost):
            return
        if has_won:
            self._champion = challenger
            # What the others lost against is champion no more.
            self._pauses = dict.fromkeys(SCALES, _FIRST_PAUSE)
            self._due = dict.fromkeys(SCALES, self._num_windows)
        else:
            self._due[challenger] = self._num_windows + self._pauses[challenger]
            self._pauses[challenger] = min(2 * self._pauses[challenger], _LONGEST_PAUSE)
        self._challenger = None
        self._gains = []

    def _next_challenger(self) -> float | None:
        """Of those that are due the nearest to the champion: response to C is smooth, so it is the safest to try."""
        due = [scale for scale in SCALES if scale != self._champion and self._due[scale] <= self._num_windows]
        return min(due, key=lambda scale: (abs(scale - self._champion), -scale), default=None)


class _Window:
    """Tokens and time of some steps in a row; those at its start do not count."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._num_tokens = 0
        self._took_ns = 0

    def add(self, num_tokens: int, took_ns: int) -> None:
        self._num_steps += 1
        if self._num_steps > _SETTLE_STEPS:
            self._num_tokens += num_tokens
            self._took_ns += took_ns

    @property
    def is_full(self) -> bool:
        return self._num_steps >= _WINDOW_STEPS and self._num_tokens > 0 and self._took_ns > 0

    @property
    def rate(self) -> float:
        """Tokens a nanosecond."""
        return self._num_tokens / self._took_ns
