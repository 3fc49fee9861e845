"""The cost model: hand-computed values, limits, and rounds played one by one."""

from __future__ import annotations

import math
import random

import pytest

from saguaro.core.cost_model import (
    DraftTimes,
    RoundTimes,
    expected_tokens,
    fallback_batch_size,
    plain_speed,
    sd_speed,
    speed_up,
    ssd_speed,
    steady_hit_rate,
)


def test_tokens_per_round_by_hand() -> None:
    assert expected_tokens(3, 0.5) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert expected_tokens(0, 0.9) == pytest.approx(1.0)
    assert expected_tokens(4, 0.0) == 1.0
    assert expected_tokens(4, 1.0) == 5.0
    assert expected_tokens(4, 1.0 - 1e-9) == pytest.approx(5.0, rel=1e-6)


def test_tokens_per_round_equal_the_mean_of_played_rounds() -> None:
    # 40,000 rounds; standard error of the mean < 0.01, so 0.05 is five of them: odds of a false alarm below 1e-6.
    randomness, lookahead, rate, rounds = random.Random(1), 5, 0.7, 40_000
    emitted = 0
    for _ in range(rounds):
        accepted = 0
        while accepted < lookahead and randomness.random() < rate:
            accepted += 1
        emitted += accepted + 1
    assert emitted / rounds == pytest.approx(expected_tokens(lookahead, rate), abs=0.05)


def test_hit_rate_is_the_share_that_a_chain_of_rounds_settles_at() -> None:
    assert steady_hit_rate(0.9, 0.4) == pytest.approx(0.4 / 0.5)
    assert steady_hit_rate(0.6, 0.6) == pytest.approx(0.6)
    assert steady_hit_rate(1.0, 0.3) == 1.0
    assert steady_hit_rate(0.8, 0.0) == 0.0
    share = 0.5
    for _ in range(200):
        share = share * 0.85 + (1 - share) * 0.55
    assert steady_hit_rate(0.85, 0.55) == pytest.approx(share)


def test_theorem_7_by_hand() -> None:
    # 0.8 * 4 + 0.2 * 3 tokens in 0.8 * 1 + 0.2 * 1.5 verifications.
    assert speed_up(0.8, 4.0, 3.0, pre_speculation=0.7, just_in_time=0.5) == pytest.approx(3.8 / 1.1)
    # A pre-speculation that does not fit stretches every hit.
    assert speed_up(0.8, 4.0, 3.0, pre_speculation=1.5, just_in_time=0.5) == pytest.approx(3.8 / 1.5)
    # Plain decoding: one token a round, nothing drafted.
    assert speed_up(0.0, 1.0, 1.0, pre_speculation=0.0, just_in_time=0.0) == 1.0


def test_only_misses_is_synchronous_decoding_and_only_hits_costs_no_drafting() -> None:
    times = RoundTimes(verify=0.1, pre_speculation=0.08, just_in_time=0.05)
    assert ssd_speed(0.0, 4.0, 3.0, times) == pytest.approx(sd_speed(3.0, times))
    assert ssd_speed(1.0, 4.0, 3.0, times) == pytest.approx(4.0 / 0.1)
    assert plain_speed(0.1) == pytest.approx(10.0)


def test_drafting_time_counts_the_extend_once() -> None:
    draft = DraftTimes(extend=0.02, step=0.01)
    assert draft.just_in_time(4) == pytest.approx(0.05)
    assert draft.pre_speculation(4) == pytest.approx(0.06)
    assert draft.just_in_time(0) == 0.0
    assert RoundTimes.of(0.1, draft, 4) == RoundTimes(0.1, draft.pre_speculation(4), draft.just_in_time(4))


def test_ssd_speed_equals_a_simulated_clock() -> None:
    # Rounds played one by one, each hit or missed after the last one's luck. 200,000 rounds: well within 1 %.
    randomness, lookahead, rate, after_hit, after_miss = random.Random(7), 4, 0.8, 0.9, 0.6
    times = RoundTimes.of(0.050, DraftTimes(extend=0.012, step=0.006), lookahead)
    clock, tokens, hit = 0.0, 0, False
    for _ in range(200_000):
        hit = randomness.random() < (after_hit if hit else after_miss)
        # A hit's draft was made while the last verification ran; a miss drafts first.
        clock += max(times.verify, times.pre_speculation) if hit else times.just_in_time + times.verify
        accepted = 0
        while accepted < lookahead and randomness.random() < rate:
            accepted += 1
        tokens += accepted + 1
    length = expected_tokens(lookahead, rate)
    predicted = ssd_speed(steady_hit_rate(after_hit, after_miss), length, length, times)
    assert tokens / clock == pytest.approx(predicted, rel=0.01)


@pytest.mark.parametrize("hit_rate", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("just_in_time", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("tokens_fast", [1.0, 2.0, 2.9])
def test_b_star_is_where_waiting_stops_to_win(hit_rate: float, just_in_time: float, tokens_fast: float) -> None:
    tokens = 3.0
    threshold = fallback_batch_size(hit_rate, tokens, tokens, tokens_fast, just_in_time)
    for batch in range(1, 200):
        waiting = tokens / (1 + just_in_time * (1 - hit_rate**batch))
        going_on = hit_rate * tokens + (1 - hit_rate) * tokens_fast
        assert (waiting > going_on) == (batch < threshold)


def test_b_star_at_its_ends() -> None:
    assert fallback_batch_size(0.8, 3.0, 3.0, 3.5, 0.5) == 0.0  # the fast backup drafts better: never wait
    assert fallback_batch_size(0.2, 5.0, 5.0, 1.0, 0.1) == math.inf  # drafting is nearly free: always wait
    assert fallback_batch_size(1.0, 3.0, 3.0, 1.0, 0.5) == 0.0  # nothing is ever missed: nothing to gain
    assert fallback_batch_size(0.0, 3.0, 3.0, 2.0, 1.0) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_tokens(-1, 0.5),
        lambda: expected_tokens(3, 1.5),
        lambda: steady_hit_rate(1.0, 0.0),
        lambda: steady_hit_rate(-0.1, 0.5),
        lambda: speed_up(1.1, 1.0, 1.0, 1.0, 1.0),
        lambda: fallback_batch_size(0.5, 3.0, 3.0, 1.0, 0.0),
    ],
)
def test_values_out_of_range_are_refused(call: object) -> None:
    with pytest.raises(ValueError):
        call()  # type: ignore[operator]
