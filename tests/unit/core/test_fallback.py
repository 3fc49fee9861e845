"""How long a miss waits, and when a speculator is given up: by its silence, whoever waits."""

from __future__ import annotations

from saguaro.core.fallback import Patience

MS = 1_000_000


def steps(patience: Patience, start_ms: int, end_ms: int) -> bool:
    """What is found at the last of the steps of 10 ms between."""
    return [patience.take_step(now_ms * MS) for now_ms in range(start_ms + 10, end_ms + 1, 10)][-1]


def test_the_wait_for_a_draft_follows_its_usual_time_within_bounds() -> None:
    patience = Patience()
    assert patience.wait_ns == 1_000 * MS
    patience.arrived(100 * MS)
    assert patience.wait_ns == 300 * MS
    patience.arrived(1)
    for _ in range(100):
        patience.arrived(MS)
    assert patience.wait_ns == 20 * MS
    assert Patience(fixed_ns=0).wait_ns == 0


def test_many_waits_in_vain_are_one_silence_and_nobody_waits_on() -> None:
    patience = Patience()
    patience.arrived(15 * MS)
    patience.asked(0)
    for _ in range(10):
        patience.expired(45 * MS)
    assert patience.wait_ns == 0
    assert not steps(patience, 0, 900)
    patience.heard()
    assert patience.wait_ns > 0
    assert not steps(patience, 900, 10_000)


def test_a_late_sign_of_life_for_anybody_is_one() -> None:
    patience = Patience()
    for start in range(0, 20_000, 900):
        patience.asked(start * MS)
        assert not steps(patience, start, start + 890)
        patience.heard()


def test_who_owes_answers_and_is_silent_is_given_up() -> None:
    patience = Patience()
    patience.asked(0)
    assert not steps(patience, 0, 800)
    patience.asked(800 * MS)  # asked again, still nothing: the silence began with the first
    assert steps(patience, 800, 1_010)


def test_time_in_which_the_verifier_stood_still_is_no_silence() -> None:
    patience = Patience()
    patience.asked(0)
    assert not patience.take_step(60_000 * MS)  # it was stopped for a minute; what came meanwhile is not yet read
    assert not steps(patience, 60_000, 60_500)
    assert steps(patience, 60_500, 61_100)


def test_steps_that_are_slow_find_a_stall_too() -> None:
    patience = Patience()
    patience.asked(0)
    assert [patience.take_step(second * 1_000 * MS) for second in range(1, 6)] == [False] * 4 + [True]


def test_who_owes_nothing_may_be_silent() -> None:
    patience = Patience()
    assert not steps(patience, 0, 10_000)
    patience.asked(10_000 * MS)
    patience.settled()
    assert not steps(patience, 10_000, 20_000)
    patience.asked(20_000 * MS)
    assert not steps(patience, 20_000, 20_900)


def test_who_was_given_up_and_lives_has_longer_the_next_time() -> None:
    patience = Patience()
    for attempt in range(10):
        patience.asked(0)
        end = min(1 << attempt, 64) * 1_000
        assert not steps(patience, 0, end)
        assert steps(patience, end, end + 10)
        patience.stalled()
        patience.renew()
    for _ in range(32):
        patience.heard()
    patience.renew()
    patience.asked(0)
    assert steps(patience, 0, 1_010)


def test_a_longer_wait_that_was_asked_for_is_granted() -> None:
    patience = Patience(fixed_ns=10_000 * MS)
    patience.asked(0)
    assert not steps(patience, 0, 10_000)
    assert steps(patience, 10_000, 10_010)


def test_a_speculator_that_is_late_again_and_again_is_waited_for_longer() -> None:
    patience = Patience()
    patience.arrived(20 * MS)
    for _ in range(20):
        patience.heard()
        patience.expired(patience.wait_ns)
    patience.heard()
    assert patience.wait_ns > 500 * MS
