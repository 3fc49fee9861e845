"""Tree decode: branches that fork from one trunk and share its KV, each blind to the others."""

import numpy as np
import pytest

from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk
from tests.unit.engine.paged import PagedSequence, Reference, assert_close, random_tokens

FORKS = [3, 3, 5, 9, 9, 0]  # trunk tokens that each branch keeps after the committed prompt
DEPTH = 4


def tree_chunk(sequence: PagedSequence, num_prompt: int, branches: list[list[int]], step: int) -> Chunk:
    """Step `step` of all branches in one forward; branch KV lies behind the trunk, step by step."""
    num_trunk, count = len(sequence.token_ids), len(branches)
    sequence.table.reserve(num_trunk + (step + 1) * count)
    visible = np.zeros((count, num_trunk + (step + 1) * count), dtype=np.bool_)
    for branch, fork in enumerate(FORKS):
        visible[branch, : num_prompt + fork] = True
        visible[branch, num_trunk + branch :: count] = True
    return Chunk(
        token_ids=[branch[step] for branch in branches],
        positions=[num_prompt + fork + step for fork in FORKS],
        write_slots=sequence.table.slots(num_trunk + step * count, num_trunk + (step + 1) * count),
        context_slots=sequence.table.slots(0, num_trunk + (step + 1) * count),
        visible=visible,
        num_logits=count,
    )


@pytest.mark.parametrize("num_prompt", [1, 7, 8, 9])
def test_tree_logits_equal_each_branch_run_alone(runner: ModelRunner, reference: Reference, num_prompt: int):
    sequence = PagedSequence(runner)
    runner.forward([sequence.chunk(random_tokens(num_prompt + 9, seed=0), 0)])
    branches = [random_tokens(DEPTH, seed=10 + branch) for branch in range(len(FORKS))]
    for step in range(DEPTH):
        logits = runner.forward([tree_chunk(sequence, num_prompt, branches, step)])
        for branch, fork in enumerate(FORKS):
            alone = sequence.token_ids[: num_prompt + fork] + branches[branch][: step + 1]
            assert_close(logits.rows[branch], reference.logits(alone)[-1])


def test_trees_of_several_sequences_beside_causal_chunks_equal_each_branch_alone(
    runner: ModelRunner, reference: Reference
):
    trees, causal = [PagedSequence(runner) for _ in range(2)], PagedSequence(runner)
    num_prompts = [5, 40]
    for index, sequence in enumerate(trees):
        runner.forward([sequence.chunk(random_tokens(num_prompts[index] + 9, seed=index), 0)])
    branches = [[random_tokens(DEPTH, seed=20 * index + branch) for branch in range(6)] for index in range(2)]
    for step in range(DEPTH):
        chunks = [tree_chunk(trees[index], num_prompts[index], branches[index], step) for index in range(2)]
        logits = runner.forward([chunks[0], causal.chunk(random_tokens(3, seed=step)), chunks[1]])
        assert_close(logits.of(1), reference.logits(causal.token_ids)[-3:])
        for index, row in enumerate((0, 2)):
            for branch, fork in enumerate(FORKS):
                alone = trees[index].token_ids[: num_prompts[index] + fork] + branches[index][branch][: step + 1]
                assert_close(logits.of(row)[branch], reference.logits(alone)[-1])


def test_after_a_tree_the_trunk_goes_on_as_if_there_had_been_none(runner: ModelRunner, reference: Reference):
    sequence = PagedSequence(runner)
    runner.forward([sequence.chunk(random_tokens(16, seed=0), 0)])
    branches = [random_tokens(DEPTH, seed=10 + branch) for branch in range(6)]
    for step in range(DEPTH):
        runner.forward([tree_chunk(sequence, 7, branches, step)])
    sequence.table.truncate(12)
    del sequence.token_ids[12:]
    logits = runner.forward([sequence.chunk(random_tokens(6, seed=1))])
    assert_close(logits.rows, reference.logits(sequence.token_ids)[-6:])


@pytest.mark.parametrize("row_that_sees_nothing", [0, 1])
def test_a_tree_row_that_sees_nothing_is_refused(runner: ModelRunner, row_that_sees_nothing: int):
    sequence = PagedSequence(runner)
    sequence.chunk([1, 2])
    visible = np.ones((2, 2), dtype=np.bool_)
    visible[row_that_sees_nothing] = False
    slots = sequence.table.slots(0, 2)
    with pytest.raises(ValueError, match="each row with a slot to see"):
        Chunk([1, 2], [0, 1], slots, slots, visible, num_logits=1)
