"""Token buckets and counts of one key, on a clock of the test's own."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.allowance import Allowance, Bucket
from saguaro.errors import InvalidRequest, RateLimited
from saguaro.keys import KeyLimits


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 600), st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_no_window_of_time_has_more_than_a_minutes_worth_and_what_fills_meanwhile(
    per_minute: int, pauses: list[float]
) -> None:
    clock = Clock()
    bucket = Bucket(per_minute, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        if bucket.seconds_until(1) == 0:
            bucket.spend(1)
            taken.append(clock.now)
    for first, start in enumerate(taken):
        for count, end in enumerate(taken[first:], start=1):
            assert count <= per_minute * (1 + (end - start) / 60) + 1e-6


@given(st.integers(1, 600), st.floats(0.1, 5000))
def test_it_holds_the_amount_exactly_when_it_said_it_would(per_minute: int, spent: float) -> None:
    clock = Clock()
    bucket = Bucket(per_minute, clock)
    bucket.spend(spent)
    wait = bucket.seconds_until(1)
    clock.now += wait * 0.99
    assert (bucket.seconds_until(1) > 0) == (wait > 0)
    clock.now += wait * 0.0101
    assert bucket.seconds_until(1) < 1e-6


def test_calls_beyond_the_rate_are_refused_with_the_limit_and_the_time_of_the_next() -> None:
    clock = Clock()
    allowance = Allowance("ann", KeyLimits(requests_per_minute=30), clock)
    for _ in range(30):
        allowance.take_request()
    with pytest.raises(RateLimited, match='key "ann" may have 30 requests a minute; try again in 2 s') as refused:
        allowance.take_request()
    clock.now += refused.value.retry_after_seconds
    allowance.take_request()


def test_answers_at_once_are_counted_by_choice_and_places_come_back_whatever_ends_them() -> None:
    allowance = Allowance("ann", KeyLimits(concurrent_answers=3))
    with pytest.raises(InvalidRequest, match="n is 4; this key may have 3 answers at once"), allowance.answering(4):
        pass
    with (
        allowance.answering(2),
        pytest.raises(RateLimited, match="3 answers at once, and 2 run"),
        allowance.answering(2),
    ):
        pass
    with contextlib.suppress(ZeroDivisionError), allowance.answering(2):
        raise ZeroDivisionError
    with allowance.answering(3):
        pass


def test_tokens_are_counted_as_they_are_used_and_debt_is_paid_by_waiting() -> None:
    clock = Clock()
    allowance = Allowance("ann", KeyLimits(tokens_per_minute=60), clock)
    with allowance.answering(1):
        allowance.spend_tokens(50)
        allowance.spend_tokens(30)  # the answer that runs is not cut
    with pytest.raises(RateLimited, match="60 tokens a minute") as refused, allowance.answering(1):
        pass
    assert refused.value.retry_after_seconds == pytest.approx(21)  # 20 of debt, and the one that it takes to begin
    clock.now += 21
    with allowance.answering(1):
        pass
