"""Whatever the batching, an emulated model says the same after the same prefix, and something else after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saguaro.core.token_tree import TokenTree
from saguaro.emulation.profile import Role
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import VerificationOutcome
from tests.unit.engine.emulated_pair import alone, prefill, runner

PREFIX = list(range(260, 290))
OTHER = [7, 8, 9, 300, 301]


@pytest.mark.parametrize("role", list(Role))
def test_prefill_in_chunks_of_any_size_is_one_forward(role: Role) -> None:
    model = runner(role)
    expected = alone(model, PREFIX)
    for size in (1, 2, 7, 29):
        with BlockTable(model.block_manager) as table:
            parts = [prefill(model, table, PREFIX[at : at + size], at) for at in range(0, len(PREFIX), size)]
        assert torch.equal(torch.cat(parts), expected)


def test_a_row_of_any_batch_is_what_it_is_alone() -> None:
    model = runner()
    expected = alone(model, PREFIX), alone(model, OTHER)
    with BlockTable(model.block_manager) as first, BlockTable(model.block_manager) as second:
        prefill(model, first, PREFIX[:20])
        first.reserve(len(PREFIX))
        second.reserve(len(OTHER))
        logits = model.forward(
            [
                Chunk.causal(PREFIX[20:], 20, first, num_logits=4),
                Chunk.causal(OTHER, 0, second, num_logits=len(OTHER)),
            ]
        )
    assert torch.equal(logits.of(0), expected[0][-4:])
    assert torch.equal(logits.of(1), expected[1])


@pytest.mark.parametrize("role", list(Role))
def test_branches_of_a_tree_are_what_they_are_alone(role: Role) -> None:
    model = runner(role)
    trunk, speculation = PREFIX, [320, 321, 322]
    outcomes = tuple(VerificationOutcome(k, 330 + k + 10 * j) for k in range(4) for j in range(2))
    tree = TokenTree(len(trunk), len(speculation), outcomes)
    branches = [[outcome.bonus_token, 350 + j, 360 + j] for j, outcome in enumerate(outcomes)]
    expected = [
        alone(model, trunk + speculation[: outcome.num_accepted] + branch)[-3:]
        for outcome, branch in zip(outcomes, branches, strict=True)
    ]
    with BlockTable(model.block_manager) as table:
        prefill(model, table, trunk + speculation)
        for step in range(3):
            table.reserve(tree.num_columns(step))
            slots = table.slots(0, tree.num_columns(step))
            tokens = [branch[step] for branch in branches]
            width = len(branches)
            chunk = Chunk(tokens, tree.positions(step), slots[-width:], slots, tree.mask(step), num_logits=width)
            rows = model.forward([chunk]).rows
            assert torch.equal(rows, torch.stack([item[step] for item in expected]))


def test_rows_of_a_tree_may_follow_each_other_in_one_forward() -> None:
    model = runner()
    expected = alone(model, [260, 261, 262, 263])
    with BlockTable(model.block_manager) as table:
        prefill(model, table, [260])
        table.reserve(4)
        visible = np.tri(3, 4, 1, dtype=np.bool_)
        chunk = Chunk([261, 262, 263], [1, 2, 3], table.slots(1, 4), table.slots(0, 4), visible, num_logits=3)
        assert torch.equal(model.forward([chunk]).rows, expected[1:])


def test_after_a_rollback_what_was_there_leaves_no_trace() -> None:
    model = runner()
    expected = alone(model, PREFIX[:20] + OTHER)
    with BlockTable(model.block_manager) as table:
        prefill(model, table, PREFIX)
        table.truncate(20)
        assert torch.equal(prefill(model, table, OTHER, 20), expected[20:])


def test_an_adopted_prefix_is_a_computed_one() -> None:
    model = runner()
    expected = alone(model, PREFIX)
    with BlockTable(model.block_manager) as first, BlockTable(model.block_manager) as second:
        prefill(model, first, PREFIX)
        first.commit(PREFIX, len(PREFIX))
        num_adopted = second.match_prefix(PREFIX)
        assert num_adopted == 28
        assert torch.equal(prefill(model, second, PREFIX[num_adopted:], num_adopted), expected[num_adopted:])


def test_a_wrong_token_slot_or_position_changes_everything_after_it() -> None:
    model = runner()
    expected = alone(model, PREFIX)
    changed = alone(model, [PREFIX[0], 399, *PREFIX[2:]])
    assert torch.equal(changed[0], expected[0])
    assert not any(torch.equal(left, right) for left, right in zip(changed[1:], expected[1:], strict=True))
    with BlockTable(model.block_manager) as table:
        prefill(model, table, PREFIX)
        context = table.slots(0, 30)
        for positions, slots in (([30], context), ([29], np.delete(context, 28)), ([29], np.roll(context, 1))):
            chunk = Chunk(PREFIX[-1:], positions, context[-1:], slots)
            assert not torch.equal(model.forward([chunk]).rows[0], expected[-1])


def test_a_tree_row_that_does_not_see_itself_last_is_refused() -> None:
    model = runner()
    with BlockTable(model.block_manager) as table:
        table.reserve(3)
        visible = np.array([[True, True, False]])
        with pytest.raises(ValueError, match="own slot"):
            model.forward([Chunk([300], [1], table.slots(2, 3), table.slots(0, 3), visible)])


def test_a_position_at_the_context_limit_is_refused() -> None:
    model = runner(context_limit=16)
    assert len(alone(model, PREFIX[:16])) == 16
    with pytest.raises(ValueError, match="the context limit is 16"):
        alone(model, PREFIX[:17])


def test_logits_are_blank_but_for_the_candidates_whatever_was_there_before() -> None:
    model = runner()
    alone(model, PREFIX)
    rows = alone(model, OTHER)
    assert ((rows > rows.min()).sum(1) == 64).all()
