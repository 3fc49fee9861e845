"""SSD by acceptance mode: what a user writes, the modes that come of it, and their table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.acceptance import AcceptanceSetting, parse_acceptances
from bench.plan import BenchPlan, Cell
from bench.results import evaluate
from bench.runner import CellTurns
from bench.tables import acceptance_report
from saguaro.errors import ConfigurationError
from tests.unit.bench.synthetic import ssd_rounds, turn

ALL = parse_acceptances("coupled,rejection, rejection:0.5,rejection:auto,rejection")


def test_each_is_a_mode_once_and_coupled_is_ssd() -> None:
    plan = BenchPlan(modes=("plain", "ssd"), acceptances=ALL)
    assert plan.mode_names == ("plain", "ssd", "ssd_rejection", "ssd_rejection:0.5", "ssd_rejection:auto")
    assert BenchPlan(modes=("plain",), acceptances=ALL[:1]).mode_names == ("plain", "ssd")
    assert parse_acceptances("") == ()


def test_requests_name_mode_and_c_unless_the_verifier_tunes_it() -> None:
    assert [setting.options for setting in ALL] == [
        {"acceptance": "coupled", "cached_scale": 1.0},
        {"acceptance": "rejection", "cached_scale": 1.0},
        {"acceptance": "rejection", "cached_scale": 0.5},
        {"acceptance": "rejection"},
    ]


@pytest.mark.parametrize("text", ["greedy", "coupled:0.5", "rejection:often", "rejection:"])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"it takes coupled, rejection, rejection:0\.5"):
        parse_acceptances(text)


def test_another_c_is_refused_by_its_limits() -> None:
    with pytest.raises(ConfigurationError, match=r"C = 1\.5; it must be from 0 to 1"):
        parse_acceptances("rejection:1.5")


def test_the_table_has_a_row_for_each_setting_and_temperature_that_was_measured() -> None:
    settings = (AcceptanceSetting("coupled"), AcceptanceSetting("rejection", 0.5), AcceptanceSetting("rejection"))
    turns = {setting.mode: [turn(setting.mode, 0, rounds=ssd_rounds())] for setting in settings[:2]}
    cells = [
        evaluate(BenchPlan(), CellTurns(Cell(temperature, 1), turns), dict.fromkeys(turns, 2)) for temperature in (0, 1)
    ]
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(acceptance_report(cells, settings))
    rows = [line.split() for line in console.export_text().splitlines() if line.strip()[:3] in ("cou", "rej")]
    assert [row[:3] for row in rows] == [
        ["coupled", "0", "1"],
        ["rejection:0.5", "0", "1"],
        ["coupled", "1", "1"],
        ["rejection:0.5", "1", "1"],
    ]
    assert rows[0][3:] == ["0.846", "0.750", "3.75", "20.0"]
