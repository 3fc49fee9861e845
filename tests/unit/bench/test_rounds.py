"""What is read from rounds: groups, rates, times, the prediction."""

from __future__ import annotations

import pytest

from bench.prediction import predict
from bench.rounds import (
    RoundGroups,
    acceptance_rate,
    bytes_per_round,
    hit_rate,
    hit_round_over_forward,
    part_milliseconds,
    tokens_per_round,
)
from saguaro.core.cost_model import RoundTimes, sd_speed, ssd_speed, steady_hit_rate
from tests.unit.bench.synthetic import HIT, answer, plain_rounds, report, sd_rounds, ssd_rounds, turn

GROUPS = RoundGroups.of([answer(rounds=ssd_rounds())])


def test_rounds_are_sorted_by_what_the_round_before_them_left() -> None:
    assert [item.round for item in GROUPS.after_hit] == [1, 2, 4]
    assert [item.round for item in GROUPS.after_miss] == [3]
    assert GROUPS.undrafted == ()


def test_rounds_of_two_answers_are_not_chained() -> None:
    both = RoundGroups.of([answer(rounds=ssd_rounds()), answer(rounds=plain_rounds())])
    assert both.speculated == GROUPS.speculated
    assert [item.round for item in both.undrafted] == [1, 2, 3, 4]


def test_rates_count_what_they_say() -> None:
    assert hit_rate(GROUPS.after_hit) == pytest.approx(2 / 3)
    assert hit_rate(GROUPS.after_miss) == 1.0
    assert hit_rate(GROUPS.undrafted) is None
    # 4 of 4, 2 of 3 judged, 1 of 2 judged, 4 of 4.
    assert acceptance_rate(GROUPS.speculated) == pytest.approx(11 / 13)
    assert tokens_per_round(GROUPS.after_hit) == pytest.approx((5 + 3 + 5) / 3)


def test_a_hit_round_over_its_forward_is_the_median_of_rounds_after_hits() -> None:
    # 102, 104 and 106 ms around forwards of 100 ms; the round after a miss, at 155 ms, is not one of them.
    assert hit_round_over_forward(GROUPS) == pytest.approx(1.04)
    assert hit_round_over_forward(RoundGroups.of([answer(rounds=plain_rounds())])) is None


def test_parts_of_a_round_are_milliseconds() -> None:
    parts = part_milliseconds(GROUPS.after_miss)
    assert parts == pytest.approx({"wait": 55.0, "verify": 100.0, "accept": 0.0, "drafting": 50.0})
    assert part_milliseconds(()) is None


def test_predictions_are_the_cost_models_on_the_measured_parts() -> None:
    turns = {
        "plain": [turn("plain", 0, rounds=plain_rounds(80.0))],
        "sd": [turn("sd", 0, rounds=sd_rounds())],
        "ssd": [turn("ssd", 0, rounds=ssd_rounds())],
        "transformers": [turn("transformers", 0)],
    }
    predicted = predict(turns)
    assert predicted["plain"] == pytest.approx(12.5)
    assert predicted["sd"] == pytest.approx(sd_speed(3.0, RoundTimes(0.1, 0.0, 0.05)))
    times = RoundTimes(verify=0.1, pre_speculation=0.085, just_in_time=0.05)
    assert predicted["ssd"] == pytest.approx(ssd_speed(steady_hit_rate(2 / 3, 1.0), 13 / 3, 2.0, times))
    assert predicted["transformers"] is None


def test_a_batch_is_predicted_as_so_many_answers_at_once() -> None:
    one = turn("plain", 0, rounds=plain_rounds())
    two = type(one)("plain", 0, one.answers * 2)
    (alone, together) = (predict({"plain": [item]})["plain"] for item in (one, two))
    assert alone is not None
    assert together == pytest.approx(2 * alone)


def test_bytes_of_a_round_are_means_each_way() -> None:
    rounds = [report(number, HIT, sent_bytes=40 + number, received_bytes=300) for number in (0, 2)]
    assert bytes_per_round(rounds) == {"sent": 41.0, "received": 300.0}
    assert bytes_per_round(()) is None
