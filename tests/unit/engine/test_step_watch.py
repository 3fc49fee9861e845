"""A step is overdue when it is far slower than usual and than the floor; slow is not hung."""

from __future__ import annotations

import pytest

from saguaro.engine.step_watch import StepWatch


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> int:
        return int(self.seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> StepWatch:
    return StepWatch(5.0, clock_ns=clock)


def forward(watch: StepWatch, clock: Clock, num_tokens: int, seconds: float) -> None:
    watch.begin_step()
    began_ns = watch.begin_forward(num_tokens)
    clock.seconds += seconds
    watch.end_forward(num_tokens, began_ns)
    watch.end_step()


def test_a_hung_forward_is_noticed_after_the_floor(watch: StepWatch, clock: Clock) -> None:
    forward(watch, clock, 4, 0.01)
    watch.begin_step()
    watch.begin_forward(4)
    clock.seconds += 4.9
    assert watch.overdue_seconds == 0
    clock.seconds += 0.2
    assert watch.overdue_seconds == pytest.approx(5.1)
    watch.end_step()
    assert watch.overdue_seconds == 0


def test_a_slow_model_has_ten_times_its_usual_forward(watch: StepWatch, clock: Clock) -> None:
    forward(watch, clock, 4, 2.0)
    watch.begin_step()
    watch.begin_forward(4)
    clock.seconds += 19.9
    assert watch.overdue_seconds == 0
    clock.seconds += 0.2
    assert watch.overdue_seconds > 20


def test_a_first_long_prefill_may_take_as_much_longer_as_it_has_more_tokens(watch: StepWatch, clock: Clock) -> None:
    forward(watch, clock, 16, 0.2)
    assert watch.allowed_seconds(16) == 5.0
    assert watch.allowed_seconds(2048) >= 10 * 0.2 * 2048 / 16 / 2
    watch.begin_step()
    watch.begin_forward(2048)
    clock.seconds += 100
    assert watch.overdue_seconds == 0


def test_before_anything_is_known_a_forward_may_take_minutes(watch: StepWatch, clock: Clock) -> None:
    watch.begin_step()
    watch.begin_forward(1)
    clock.seconds += 100
    assert watch.overdue_seconds == 0
    clock.seconds += 100
    assert watch.overdue_seconds == pytest.approx(200)


def test_warm_up_outside_of_a_step_is_learned_but_never_overdue(watch: StepWatch, clock: Clock) -> None:
    began_ns = watch.begin_forward(8)
    clock.seconds += 1000
    assert watch.overdue_seconds == 0
    watch.end_forward(8, began_ns)
    assert watch.allowed_seconds(8) == 10_000


def test_a_suspended_machine_does_not_make_the_watch_blind(watch: StepWatch, clock: Clock) -> None:
    forward(watch, clock, 4, 1.0)
    forward(watch, clock, 4, 3600.0)
    assert watch.allowed_seconds(4) == 20.0
    for _ in range(50):
        forward(watch, clock, 4, 1.0)
    assert watch.allowed_seconds(4) == pytest.approx(10.0, rel=0.01)


def test_a_step_that_hangs_without_a_forward_is_noticed(watch: StepWatch, clock: Clock) -> None:
    forward(watch, clock, 4, 0.01)
    watch.begin_step()
    clock.seconds += 6
    assert watch.overdue_seconds == pytest.approx(6)
