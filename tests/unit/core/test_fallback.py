"""How long a miss waits, and when a speculator is given up: by its silence, whoever waits."""

from __future__ import annotations

from saguaro.core.fallback import Patience

MS = 1_000_000


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
    assert not patience.is_exhausted(900 * MS)
    patience.heard()
    assert patience.wait_ns > 0
    assert not patience.is_exhausted(10_000 * MS)


def test_a_late_sign_of_life_for_anybody_is_one() -> None:
    patience = Patience()
    for start in range(0, 20_000, 900):
        patience.asked(start * MS)
        assert not patience.is_exhausted((start + 899) * MS)
        patience.heard()


def test_who_owes_answers_and_is_silent_is_given_up() -> None:
    patience = Patience()
    patience.asked(0)
    patience.asked(800 * MS)  # asked again, still nothing: the silence began with the first
    assert patience.is_exhausted(1_001 * MS)


def test_who_owes_nothing_may_be_silent() -> None:
    patience = Patience()
    assert not patience.is_exhausted(10_000 * MS)
    patience.asked(0)
    patience.settled()
    assert not patience.is_exhausted(10_000 * MS)
    patience.asked(20_000 * MS)
    assert not patience.is_exhausted(20_900 * MS)


def test_who_was_given_up_and_lives_has_longer_the_next_time() -> None:
    patience = Patience()
    for attempt in range(10):
        patience.asked(0)
        assert not patience.is_exhausted((min(1 << attempt, 64) * 1_000 - 1) * MS)
        assert patience.is_exhausted((min(1 << attempt, 64) * 1_000 + 1) * MS)
        patience.stalled()
        patience.renew()
    for _ in range(32):
        patience.heard()
    patience.renew()
    patience.asked(0)
    assert patience.is_exhausted(1_001 * MS)


def test_a_longer_wait_that_was_asked_for_is_granted() -> None:
    patience = Patience(fixed_ns=10_000 * MS)
    patience.asked(0)
    assert not patience.is_exhausted(9_999 * MS)
    assert patience.is_exhausted(10_001 * MS)


def test_a_speculator_that_is_late_again_and_again_is_waited_for_longer() -> None:
    patience = Patience()
    patience.arrived(20 * MS)
    for _ in range(20):
        patience.heard()
        patience.expired(patience.wait_ns)
    patience.heard()
    assert patience.wait_ns > 500 * MS
