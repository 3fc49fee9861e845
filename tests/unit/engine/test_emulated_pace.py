"""Emulated forwards take the time that the profile says, and go wrong when it says so."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

from saguaro.emulation.profile import Faults, ForwardTime
from saguaro.engine import emulated_pace
from saguaro.engine.emulated_pace import CRASH_EXIT_CODE, Pace

LAW = ForwardTime(base_ms=4.0, flat_rows=8, ms_per_row=0.5)


@pytest.fixture
def milliseconds(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Milliseconds that each of a number of forwards of one row would last."""

    def of(faults: Faults, count: int) -> list[float]:
        lasted: list[float] = []
        monkeypatch.setattr(emulated_pace, "_sleep_until", lambda deadline_ns: lasted.append(deadline_ns / 1e6))
        pace = Pace(LAW, faults)
        for _ in range(count):
            pace.finish(0, 1)
        return lasted

    return of


@pytest.mark.parametrize(("num_rows", "expected"), [(0, 4.0), (1, 4.0), (8, 4.0), (9, 4.5), (48, 24.0)])
def test_time_is_flat_up_to_some_rows_and_linear_beyond(num_rows: int, expected: float) -> None:
    assert LAW.milliseconds(num_rows) == expected


def test_a_forward_ends_when_it_is_due_whatever_was_computed_meanwhile() -> None:
    pace = Pace(LAW, Faults())
    late_ms = []
    for computed_ms in (0.0, 1.0, 2.0) * 5:
        started_ns = time.monotonic_ns()
        time.sleep(computed_ms / 1e3)
        pace.finish(started_ns, 10)
        late_ms.append((time.monotonic_ns() - started_ns) / 1e6 - 5.0)
    assert min(late_ms) >= 0
    # A busy machine wakes a sleeper late now and then, hence the median.
    assert statistics.median(late_ms) < 0.5


def test_every_nth_forward_stalls(milliseconds) -> None:  # type: ignore[no-untyped-def]
    assert milliseconds(Faults(stall_every=3, stall_ms=50), 7) == [4, 4, 54, 4, 4, 54, 4]


def test_jitter_is_lognormal_with_mean_one_and_the_same_for_the_same_seed(milliseconds) -> None:  # type: ignore[no-untyped-def]
    lasted = milliseconds(Faults(jitter_sigma=0.3, jitter_seed=5), 4000)
    # Standard error of the mean: 0.31 * 4 / sqrt(4000) = 0.02; five of them.
    assert abs(statistics.mean(lasted) - 4.0) < 0.1
    assert milliseconds(Faults(jitter_sigma=0.3, jitter_seed=5), 4) == lasted[:4]
    assert milliseconds(Faults(jitter_sigma=0.3, jitter_seed=6), 4) != lasted[:4]


def test_the_process_dies_hard_in_the_forward_that_the_profile_names() -> None:
    program = (
        "from saguaro.emulation.profile import Faults, ForwardTime\n"
        "from saguaro.engine.emulated_pace import Pace\n"
        "pace = Pace(ForwardTime(base_ms=0), Faults(crash_at=3))\n"
        "for forward in range(1, 9):\n"
        "    pace.finish(0, 1)\n"
        "    print(forward, flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.split()) == (CRASH_EXIT_CODE, ["1", "2"])
