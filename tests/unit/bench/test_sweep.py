"""What a user writes for a sweep, and the modes that come of it."""

from __future__ import annotations

import pytest

from bench.plan import BenchPlan
from bench.sweep import FixedSetting, parse_sweep
from saguaro.errors import ConfigurationError


def test_a_sweep_is_every_combination() -> None:
    settings = parse_sweep("K=4,6 B=16,24 b*=0,inf", lookahead=8, budget=16)
    assert len(set(settings)) == 8
    assert settings[0] == FixedSetting(4, 16, "0")
    assert settings[-1].policy == "fixed:6,24,inf"


def test_what_a_sweep_does_not_name_is_the_plans() -> None:
    assert parse_sweep("B=0", lookahead=8, budget=16) == (FixedSetting(8, 0),)
    assert parse_sweep(" ", lookahead=8, budget=16) == ()


@pytest.mark.parametrize("text", ["K", "4,6", "F=3", "K=", "K=4,x", "B=-1", "b*=often", "K=4, 6"])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="it takes K, B and b"):
        parse_sweep(text, lookahead=8, budget=16)


def test_fixed_settings_are_modes_and_within_the_automatic_policys_reach() -> None:
    plan = BenchPlan(modes=("plain", "ssd"), sweep=parse_sweep("K=4,12 B=40", lookahead=8, budget=16))
    assert plan.mode_names == ("plain", "ssd", "fixed:4,40,inf", "fixed:12,40,inf")
    assert (plan.most_lookahead, plan.most_budget) == (12, 40)
    assert (BenchPlan().most_lookahead, BenchPlan().most_budget) == (BenchPlan().lookahead, BenchPlan().budget)
