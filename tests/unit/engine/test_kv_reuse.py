"""Slots that are rolled back, shared, recycled or never written: no trace of it in any logit."""

from pathlib import Path

import pytest

from saguaro.engine.block_manager import BlockTable
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk
from tests.unit.engine.paged import BLOCK_SIZE, PagedSequence, Reference, assert_close, make_runner, random_tokens


@pytest.mark.parametrize("num_accepted", range(6))
def test_rollback_by_truncate_and_other_tokens_equals_a_fresh_run(
    runner: ModelRunner, reference: Reference, num_accepted: int
):
    sequence = PagedSequence(runner)
    prompt, rejected = random_tokens(2 * BLOCK_SIZE + 2, seed=0), random_tokens(6, seed=1)
    runner.forward([sequence.chunk(prompt, 0)])
    runner.forward([sequence.chunk(rejected)])
    kept = len(prompt) + num_accepted
    sequence.table.commit(sequence.token_ids, kept)
    sequence.table.truncate(kept)
    del sequence.token_ids[kept:]
    logits = runner.forward([sequence.chunk(random_tokens(5, seed=2))])
    assert_close(logits.rows, reference.logits(sequence.token_ids)[-5:])


@pytest.mark.parametrize("num_more", [1, 3, 4, 5, 9])
def test_a_second_prompt_on_a_shared_prefix_equals_a_cold_run(runner: ModelRunner, reference: Reference, num_more: int):
    prefix = random_tokens(3 * BLOCK_SIZE, seed=0)
    first = PagedSequence(runner)
    runner.forward([first.chunk(prefix + random_tokens(2, seed=1), 0)])
    first.table.commit(first.token_ids, len(first.token_ids))
    prompt = prefix + random_tokens(num_more, seed=2)
    with BlockTable(runner.block_manager) as table:
        num_cached = table.match_prefix(prompt)
        assert num_cached == len(prefix)
        table.reserve(len(prompt))
        logits = runner.forward([Chunk.causal(prompt[num_cached:], num_cached, table, num_logits=num_more)])
    assert_close(logits.rows, reference.logits(prompt)[-num_more:])


def test_a_fully_cached_prompt_computes_its_last_block_again_and_equals_a_cold_run(
    runner: ModelRunner, reference: Reference
):
    prompt = random_tokens(3 * BLOCK_SIZE, seed=0)
    first = PagedSequence(runner)
    runner.forward([first.chunk(prompt, 0)])
    first.table.commit(prompt, len(prompt))
    with BlockTable(runner.block_manager) as table:
        num_cached = table.match_prefix(prompt)
        assert num_cached == 2 * BLOCK_SIZE
        table.reserve(len(prompt))
        logits = runner.forward([Chunk.causal(prompt[num_cached:], num_cached, table, num_logits=1)])
    assert_close(logits.rows, reference.logits(prompt)[-1:])


def test_a_sequence_on_recycled_blocks_equals_one_on_fresh_blocks(llama: Path, reference: Reference):
    runner = make_runner(llama, num_blocks=6)
    for seed in range(8):
        sequence = PagedSequence(runner)
        token_ids = random_tokens(6 * BLOCK_SIZE, seed=seed)
        runner.forward([sequence.chunk(token_ids[:-3], 0)])
        assert_close(runner.forward([sequence.chunk(token_ids[-3:])]).rows, reference.logits(token_ids)[-3:])
        sequence.table.commit(token_ids, len(token_ids))
        sequence.table.free()


def test_writing_a_sealed_position_is_refused(runner: ModelRunner):
    sequence = PagedSequence(runner)
    runner.forward([sequence.chunk(random_tokens(9, seed=0), 0)])
    sequence.table.commit(sequence.token_ids, 9)
    with pytest.raises(ValueError, match="writing position 7: the first 8 are sealed"):
        Chunk.causal([1, 2], 7, sequence.table, 1)


def test_the_last_positions_before_the_context_limit_equal_transformers_and_the_next_is_refused(
    runner: ModelRunner, reference: Reference
):
    assert runner.context_limit == 512
    sequence, token_ids = PagedSequence(runner), random_tokens(512, seed=0)
    runner.forward([sequence.chunk(token_ids[:508], 0)])
    assert_close(runner.forward([sequence.chunk(token_ids[508:])]).rows, reference.logits(token_ids)[-4:])
    with pytest.raises(ValueError, match="position 512: the context limit is 512 tokens"):
        runner.forward([sequence.chunk([1])])


def test_slots_that_nobody_wrote_may_hold_nan_also_beside_and_behind_those_in_use(
    runner: ModelRunner, reference: Reference
):
    unwritten = BlockTable(runner.block_manager)
    unwritten.reserve(BLOCK_SIZE)  # slot 0 among them
    sequences = [PagedSequence(runner) for _ in range(3)]
    runner.forward(
        [sequence.chunk(random_tokens(9 * index + 2, seed=index), 0) for index, sequence in enumerate(sequences)]
    )
    for sequence in sequences:
        sequence.table.reserve(len(sequence.token_ids) + 3 * BLOCK_SIZE)
    logits = runner.forward(
        [sequence.chunk(random_tokens(index + 1, seed=9)) for index, sequence in enumerate(sequences)]
    )
    for index, sequence in enumerate(sequences):
        assert_close(logits.of(index), reference.logits(sequence.token_ids)[-index - 1 :])
    assert sum(int(layer.isnan().flatten(1).any(dim=1).sum()) for layer in runner.kv_pool.layers) > 0
