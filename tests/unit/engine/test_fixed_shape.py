"""Fixed-shape numerics: a row's bits do not depend on what is computed beside it; what cannot keep that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from saguaro.config.services import Numerics
from saguaro.engine import measure_numerics
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.fast_model import make_fast
from saguaro.engine.fixed_shape import prove, with_a_second_row
from saguaro.engine.model_runner import Logits, ModelRunner
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import ConfigurationError
from tests.unit.engine.paged import assert_close, random_tokens

TOKENS = random_tokens(300, seed=4)
FAMILIES_WITH_SQUASHED_SCORES = "gemma2"


def runner_of(folder: Path, numerics: Numerics = "fixed-shape") -> ModelRunner:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    make_fast(model, "packed", "target")
    return ModelRunner(model, num_blocks=256, block_size=8, numerics=numerics)


def in_pieces(runner: ModelRunner, lengths: Sequence[int], beside: Sequence[Chunk] = ()) -> Tensor:
    """Logits of the first tokens, computed in forwards of these lengths."""
    rows, start = [], 0
    with BlockTable(runner.block_manager) as table:
        for length in lengths:
            table.reserve(start + length)
            chunk = Chunk.causal(TOKENS[start : start + length], start, table, num_logits=length)
            rows.append(runner.forward([chunk, *beside]).of(0))
            start += length
    return torch.cat(rows)


@pytest.mark.parametrize("lengths", [[1] * 20, [5] * 4, [280, 8, 8, 4], [255, 1, 1, 1, 42], [100, 100, 100]])
def test_a_prompt_and_its_pieces_have_the_same_bits(llama: Path, lengths: list[int]) -> None:
    runner = runner_of(llama)
    whole = in_pieces(runner, [sum(lengths)])
    assert torch.equal(in_pieces(runner, lengths), whole)


def test_other_sequences_beside_it_change_no_bit(llama: Path) -> None:
    runner = runner_of(llama)
    alone = in_pieces(runner, [30, 1, 4, 1])
    with BlockTable(runner.block_manager) as table:
        table.reserve(300)
        runner.forward([Chunk.causal(TOKENS[:290], 0, table, num_logits=0)])
        beside = [Chunk.causal(TOKENS[290:297], 290, table, num_logits=7)]
        assert torch.equal(in_pieces(runner, [30, 1, 4, 1], beside), alone)


def test_the_logits_are_those_of_fast_numerics_but_for_rounding(llama: Path) -> None:
    assert_close(in_pieces(runner_of(llama), [200, 5]), in_pieces(runner_of(llama, "fast"), [200, 5]))


def test_every_family_proves_itself_or_is_refused(any_model: Path) -> None:
    runner = runner_of(any_model)
    if runner._model.config.model_type == FAMILIES_WITH_SQUASHED_SCORES:
        with pytest.raises(ConfigurationError, match="no attention with squashed scores"):
            prove(runner)
    else:
        prove(runner)
    assert runner.block_manager.num_free == runner.block_manager.num_blocks


def test_a_model_whose_rows_depend_on_their_number_is_refused(llama: Path) -> None:
    runner = runner_of(llama)
    real = runner.forward

    def forward(chunks: Sequence[Chunk]) -> Logits:
        logits = real(chunks)
        return Logits(logits.rows + 1e-3 * len(logits.rows), logits.offsets)

    runner.forward = forward  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="in forwards of 64, 8, 1, 2, 5 tokens it gives other logits"):
        prove(runner)


def test_a_lone_row_gets_a_second_one_which_nobody_sees(llama: Path) -> None:
    runner = runner_of(llama)
    with BlockTable(runner.block_manager) as table:
        table.reserve(10)
        chunk = Chunk.causal(TOKENS[:10], 0, table, num_logits=1)
        assert [len(item.token_ids) for item in with_a_second_row([chunk])] == [10, 1]
        logits = runner.forward([chunk])
        assert logits.rows.shape == (1, runner.vocab_size)
        two = Chunk.causal(TOKENS[:10], 0, table, num_logits=2)
        assert with_a_second_row([two]) == [two]
        assert torch.equal(runner.forward([two]).rows[1:], logits.rows)


def test_the_measurement_finds_all_shapes_the_same_to_the_bit(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure_numerics.main(["--model", str(llama), "--texts", "3", "--tokens", "72", "--kinds", "float32/fixed-shape"])
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "float32/fixed-shape, 3 texts of 72 tokens, 1 threads"
    assert [line.split()[2].rstrip(":") for line in lines] == ["1x1", "8x1", "8x8", "whole"]
    assert all(line.endswith("100.0% the same to the bit") or "among them" in line for line in lines), lines
    assert all(" 0 of " in line for line in lines)


def test_a_comparison_counts_what_differs_and_how_far_gaps_moved() -> None:
    one = measure_numerics.Readings.of(torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 1.0], [0.0, 1.0, 4.0]]))
    other = measure_numerics.Readings.of(torch.tensor([[1.0, 3.0, 2.5], [5.0, 5.5, 1.0], [0.0, 1.0, 4.0]]))
    assert one.ids.tolist() == [[1, 2], [0, 1], [2, 1]]  # of equal logits the lowest id
    found = measure_numerics.Comparison.of(one, other)
    assert (found.num_positions, found.gaps_where_different) == (3, (0.0,))
    assert (found.largest_change, found.share_identical) == (0.5, pytest.approx(1 / 3))
