from __future__ import annotations

import itertools
import random

import pytest

from saguaro.core.forward_time import ForwardTime
from saguaro.core.planner import FixedPolicy, Planner, RoundKind
from saguaro.types import TokenProvenance

MS = 1_000_000


def run(
    *,
    acceptance: float,
    hit_rate: float,
    base_ms: float = 20.0,
    ms_per_row: float = 0.0,
    draft_ms: float = 1.0,
    batch: int = 1,
    steps: int = 600,
    max_lookahead: int = 8,
) -> Planner:
    """A planner that lived through a machine with these laws."""
    planner, source = Planner(max_lookahead=max_lookahead, start_lookahead=4), random.Random(3)
    for rows in (1, 2, 3, 5, 9, 17, 64, 256, 600):
        planner.forward.observe(rows, int((base_ms + ms_per_row * rows) * MS))
    for _ in range(steps):
        plan = planner.next_step(batch)
        rows = batch * (1 + plan.lookahead)
        planner.forward.observe(rows, int((base_ms + ms_per_row * rows) * MS))
        if plan.lookahead == 0:
            continue
        accepted = 0
        while accepted < plan.lookahead and source.random() < acceptance:
            accepted += 1
        planner.drafts.observe(accepted, plan.lookahead)
        planner.observe_lookup(hit=source.random() < hit_rate, depth=plan.lookahead, after=RoundKind.HIT)
        planner.observe_just_in_time(plan.lookahead, int(draft_ms * (plan.lookahead + 1) * MS))
    return planner


def test_a_good_draft_on_a_flat_target_gets_the_longest_lookahead() -> None:
    plan = run(acceptance=0.95, hit_rate=0.9).plan
    assert plan.lookahead == 8
    assert plan.predicted_rate > 4 * plan.plain_rate


def test_a_draft_that_is_never_right_ends_in_plain_decoding() -> None:
    plan = run(acceptance=0.0, hit_rate=0.0, ms_per_row=2.0).plan
    assert plan.lookahead == 0
    assert plan.predicted_rate == plan.plain_rate


def test_alone_a_useful_draft_is_kept_though_its_rows_look_dear_and_among_others_it_is_not() -> None:
    assert run(acceptance=0.4, hit_rate=0.4, ms_per_row=30.0).plan.lookahead == 1
    assert run(acceptance=0.4, hit_rate=0.4, ms_per_row=30.0, batch=8).plan.lookahead == 0


def test_dear_rows_shorten_the_lookahead() -> None:
    cheap = run(acceptance=0.8, hit_rate=0.8, ms_per_row=0.0).plan.lookahead
    dear = run(acceptance=0.8, hit_rate=0.8, ms_per_row=8.0).plan.lookahead
    assert 0 < dear < cheap


def test_plain_decoding_looks_again_whether_speculation_pays_by_now() -> None:
    planner = run(acceptance=0.0, hit_rate=0.0, ms_per_row=2.0, steps=100)
    probes = []
    for _ in range(5000):
        planner.next_step(1)
        probes.append(planner.plan)  # the one in force, by which the next round is speculated
        if planner.plan.lookahead:
            planner.drafts.observe(0, planner.plan.lookahead)
            planner.observe_lookup(hit=False, depth=0, after=RoundKind.PLAIN)
    assert 8 <= sum(plan.lookahead > 0 for plan in probes) < 60
    assert not any(plan.waits_on_miss for plan in probes if plan.lookahead)
    looks = [step for step in range(1, 5000) if probes[step].lookahead and not probes[step - 1].lookahead]
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 1.8 * gaps[0]  # ever more rarely
    for _ in range(5000):  # the draft has become good
        planner.next_step(1)
        if planner.plan.lookahead:
            planner.drafts.observe(planner.plan.lookahead, planner.plan.lookahead)
            planner.observe_lookup(hit=True, depth=planner.plan.lookahead, after=RoundKind.HIT)
    assert planner.plan.lookahead > 2


def test_a_look_waits_until_the_speculator_has_computed_the_prompts_and_does_not_hold_it_against_it() -> None:
    planner = run(acceptance=0.0, hit_rate=0.0, ms_per_row=2.0, batch=4)
    while not planner.plan.lookahead:
        planner.next_step(4)
    hit_rate = planner.hit_rate
    for _ in range(20):
        assert planner.next_step(4).lookahead
        planner.observe_lookup(hit=False, depth=0, after=RoundKind.PLAIN, late=True)
    assert planner.hit_rate == hit_rate
    planner.observe_lookup(hit=True, depth=2, after=RoundKind.PLAIN)
    assert planner.hit_rate > hit_rate
    assert all(planner.next_step(4).lookahead for _ in range(7))
    assert not planner.next_step(4).lookahead


def test_the_speculator_rests_between_looks_and_only_where_plain_decoding_has_been_the_plan_for_a_while() -> None:
    planner = run(acceptance=0.0, hit_rate=0.0, ms_per_row=2.0, steps=0)
    rests, plain_steps = [], 0
    for _ in range(1200):
        planner.next_step(1)
        plain_steps = 0 if planner.plan.lookahead else plain_steps + 1
        rests.append(planner.rests)
        assert not planner.rests or plain_steps >= 64
        if planner.plan.lookahead:
            planner.drafts.observe(0, planner.plan.lookahead)
            planner.observe_lookup(hit=False, depth=0, after=RoundKind.PLAIN)
    assert sum(rests) > 600
    fixed = Planner(max_lookahead=6, start_lookahead=4, fixed=FixedPolicy(0, 8, 0.0))
    assert not any((fixed.next_step(1), fixed.rests)[1] for _ in range(200))


def test_a_wait_that_was_never_timed_is_not_asked_for_among_others() -> None:
    for batch, waits in ((1, True), (8, False)):
        planner = Planner(max_lookahead=6, start_lookahead=4)
        planner.forward.observe(1, 20 * MS)
        for _ in range(40):
            planner.drafts.observe(4, 4)
            assert planner.next_step(batch).waits_on_miss is waits


def test_a_fixed_policy_is_obeyed() -> None:
    planner = Planner(max_lookahead=5, start_lookahead=4, fixed=FixedPolicy(5, 8, 3.0))
    assert planner.next_step(2).waits_on_miss
    assert not planner.next_step(3).waits_on_miss
    assert planner.next_step(3).lookahead == 5
    assert planner.worth(TokenProvenance.NGRAM_DRAFT, 3, 1).length == 0


def test_guesses_without_a_model_pay_as_long_as_they_are_accepted() -> None:
    planner = run(acceptance=0.5, hit_rate=0.5, ms_per_row=1.0)
    ngrams, neighbours = TokenProvenance.NGRAM_DRAFT, TokenProvenance.NEIGHBOUR_DRAFT
    for _ in range(50):
        planner.profile_of(ngrams).observe(4, 4)
        planner.profile_of(neighbours).observe(0, 4)
    assert planner.worth(ngrams, 4, 1).length == 4
    assert planner.worth(neighbours, 4, 1).length == 0
    assert max(planner.worth(ngrams, 4, 1), planner.worth(neighbours, 4, 1)).kind is ngrams
    for _ in range(300):
        planner.profile_of(ngrams).observe(0, 4)
    assert planner.worth(ngrams, 4, 1).length == 0


def test_forward_times_are_interpolated_and_flat_outside() -> None:
    forward = ForwardTime()
    assert forward.expect_ns(4) == 0.0
    forward.observe(8, 200)
    forward.observe(2, 100)
    assert [forward.expect_ns(rows) for rows in (1, 2, 5, 8, 99)] == [100, 100, 150, 200, 200]
    for _ in range(100):
        forward.observe(8, 400)
    assert forward.expect_ns(8) == pytest.approx(400, rel=0.01)
