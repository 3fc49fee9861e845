"""Statistics, the document, the tables, the pictures, the plan."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.measured import TimedAnswer, Turn
from bench.plan import BenchPlan, Cell, batches, rotated
from bench.plots import Span, time_line, write_plot
from bench.prompts import KINDS, load_prompts
from bench.provenance import provenance
from bench.results import CellResult, document, evaluate, sweep_of
from bench.runner import CellTurns, fitting_tokens
from bench.summary import paired_ratio, percentile, summarize
from bench.tables import cell_report, origin_line
from saguaro.errors import ConfigurationError
from tests.unit.bench.synthetic import all_turns, answer, dated_rounds, turn

PLAN = BenchPlan.quick("demo-target", "demo-draft", None, 40.0)
PACES = {"fixed:4,16,inf": 0.12, "fixed:6,16,inf": 0.09}
CORES = {"plain": 1, "sd": 2, "ssd": 2, "transformers_assisted": 2}


def result(concurrency: int = 1) -> CellResult:
    return evaluate(PLAN, CellTurns(Cell(0.0, concurrency), all_turns()), CORES)


def test_speed_leaves_out_the_prompt_and_the_first_token() -> None:
    assert turn("ssd", 0, pace_seconds=0.1).tokens_per_second == pytest.approx(8 / 0.4)


def test_speed_of_a_batch_counts_from_the_first_answer_to_the_last() -> None:
    both = Turn("ssd", 0, (answer(sent_at=0.0), answer(sent_at=0.2)))
    assert both.tokens_per_second == pytest.approx(16 / 0.6)


def test_an_answer_of_one_piece_counts_whole() -> None:
    whole = answer()
    short = TimedAnswer(0.0, whole.arrivals[:1], (7,))
    assert Turn("ssd", 0, (short,)).tokens_per_second == pytest.approx(1 / 0.5)


def test_an_answer_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        TimedAnswer(0.0, ())


def test_percentiles_are_values_that_occurred() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 3.0, 5.0, 5.0]


def test_ttft_counts_only_prompts_that_had_to_be_computed() -> None:
    cold, warm = answer(), answer(cached_share=0.9)
    assert summarize([Turn("ssd", 0, (cold, warm))], num_cores=2).ttft_ms == pytest.approx(500)
    assert summarize([Turn("ssd", 0, (warm,))], num_cores=2).ttft_ms is None


def test_latency_of_a_token_is_its_share_of_the_runs() -> None:
    summary = summarize([turn("ssd", 0, pace_seconds=0.1)], num_cores=2)
    assert summary.inter_run_ms == pytest.approx((100.0, 100.0))
    assert summary.inter_token_ms == pytest.approx((50.0, 50.0))
    assert summary.tokens_per_second_per_core == pytest.approx(10.0)


def test_ratios_pair_the_turns_of_one_batch() -> None:
    # Batch 1 met a machine ten times slower; batch 2 was measured for one mode only.
    fast = [turn("ssd", 0, pace_seconds=0.1), turn("ssd", 1, pace_seconds=1.0), turn("ssd", 2, pace_seconds=9.0)]
    slow = [turn("sd", 0, pace_seconds=0.15), turn("sd", 1, pace_seconds=1.5)]
    assert paired_ratio(fast, slow) == pytest.approx(1.5)
    assert paired_ratio(fast, []) is None


def test_each_mode_takes_each_place_equally_often() -> None:
    modes = ("a", "b", "c")
    orders = [rotated(modes, batch) for batch in range(6)]
    for place in range(3):
        assert sorted(order[place] for order in orders) == ["a", "a", "b", "b", "c", "c"]


def test_batches_are_full_and_miss_nothing() -> None:
    assert batches([1, 2, 3, 4, 5], 2) == [(1, 2), (3, 4), (5, 1)]
    assert batches([1, 2], 4) == [(1, 2, 1, 2)]


def test_any_beginning_of_the_prompts_is_mixed() -> None:
    prompts = load_prompts(KINDS, 30)
    assert len(prompts) == len({item.text for item in prompts}) == 120
    assert tuple(item.kind for item in prompts[:4]) == KINDS


def test_answers_get_shorter_only_where_time_is_short() -> None:
    assert fitting_tokens(32, None, 100.0) == 32
    assert fitting_tokens(32, 30.0, 3.0) == 32
    assert fitting_tokens(32, 10.0, 2.0) == 20
    assert fitting_tokens(32, -5.0, 2.0) == 12


def test_the_document_has_the_ratios_and_speeds_of_the_first_cell() -> None:
    ready = json.loads(json.dumps(document(PLAN, [result(), result(2)], provenance(["saguaro", "bench"]))))
    assert ready["ratios"] == {
        "ssd_over_sd": pytest.approx(1.5),
        "ssd_over_plain": pytest.approx(2.0),
        "ssd_over_assisted": pytest.approx(2.5),
        "hit_round_over_forward": pytest.approx(1.04),
    }
    assert ready["hit_rate"] == pytest.approx(3 / 4)
    assert ready["acceptance_rate"] == pytest.approx(11 / 13)
    assert set(ready["measured"]) == set(ready["predicted"]) == set(PLAN.modes)
    assert ready["measured"]["ssd"] > 0 < ready["predicted"]["ssd"]
    assert [item["concurrency"] for item in ready["cells"]] == [1, 2]
    assert set(ready["cells"][0]["modes"]["ssd"]["speculated"]["round_ms"]) == {"wait", "verify", "accept", "drafting"}
    assert {"commit", "versions", "hardware", "command"} <= set(ready["provenance"])
    assert ready["provenance"]["command"] == "saguaro bench"


def test_ratios_of_modes_that_were_not_run_are_null() -> None:
    turns = {"ssd": all_turns()["ssd"]}
    ratios = evaluate(PLAN, CellTurns(Cell(0.0, 1), turns), CORES).ratios
    assert ratios["ssd_over_sd"] is None
    assert ratios["hit_round_over_forward"] is not None


def test_an_interrupted_cell_has_the_modes_that_came_before() -> None:
    turns = {mode: items for mode, items in all_turns().items() if mode in ("plain", "sd")}
    ratios = evaluate(PLAN, CellTurns(Cell(0.0, 1), turns), CORES).ratios
    assert set(ratios.values()) == {None}


def test_a_sweep_names_the_fixed_policy_that_auto_beats_least() -> None:
    auto = [turn("ssd", batch, pace_seconds=0.1) for batch in range(2)]
    fixed = {name: [turn(name, batch, pace_seconds=pace) for batch in range(2)] for name, pace in PACES.items()}
    swept = sweep_of(auto, fixed)
    assert swept is not None
    assert swept.best == "fixed:6,16,inf"
    assert swept.auto_over_best == pytest.approx(0.9)
    assert swept.auto_over["fixed:4,16,inf"] == pytest.approx(1.2)
    assert sweep_of([], fixed) is None


def test_the_report_says_ratios_before_speeds() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(cell_report(result()))
    text = console.export_text()
    assert text.index("ssd over sd") < text.index("tokens per second")
    assert "1.500" in text
    assert "transformers_assisted" in text
    assert "saguaro bench" in origin_line(provenance(["saguaro", "bench"]))


def test_drafting_lies_under_the_verification_whose_outcome_it_guessed() -> None:
    assert time_line(dated_rounds()) == [
        Span("verify", 0.0, 100.0),
        Span("verify", 102.0, 100.0),
        Span("hidden", 1.0, 90.0),  # under the first verification, for the second
        Span("verify", 260.0, 100.0),
        Span("waited", 205.0, 50.0),
    ]
    assert time_line(()) == []


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_written(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"bench.{suffix}"
    write_plot(file, [result(), result(2)], dated_rounds())
    assert file.stat().st_size > 5000


@pytest.mark.parametrize(
    "options",
    [
        {"modes": ("sdd",)},
        {"kinds": ("poems",)},
        {"modes": ()},
        {"modes": ("transformers",)},
        {"modes": ("ssd", "transformers"), "emulate": "qwen3-32b"},
        {"modes": ("ssd", "plain_all_cores"), "emulate": "qwen3-32b"},
        {"rtts_ms": (-1.0,)},
        {"concurrencies": ()},
    ],
)
def test_a_plan_that_cannot_run_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        BenchPlan(**options)  # type: ignore[arg-type]


def test_an_emulated_pair_is_compared_with_itself_alone() -> None:
    assert BenchPlan.quick("t", "d", "qwen3-32b", 40.0).modes == ("plain", "sd", "ssd")


def test_round_trips_add_a_mode_each() -> None:
    plan = BenchPlan(modes=("plain", "ssd"), rtts_ms=(0.0, 1.0, 5.0))
    assert plan.mode_names == ("plain", "ssd", "ssd_rtt_1ms", "ssd_rtt_5ms")
