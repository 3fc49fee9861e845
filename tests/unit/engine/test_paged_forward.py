"""Every way to cut sequences into ragged forwards gives the logits of transformers' own forward."""

from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

from saguaro.engine.model_runner import ModelRunner
from tests.tiny_models import write_tiny_model
from tests.unit.engine.paged import BLOCK_SIZE, PagedSequence, Reference, assert_close, make_runner, random_tokens


def test_prefill_in_one_go_equals_transformers_for_every_family_and_head_layout(any_model: Path):
    runner, reference = make_runner(any_model), Reference(any_model)
    token_ids = random_tokens(37, seed=0)
    assert_close(runner.forward([PagedSequence(runner).chunk(token_ids)]).of(0), reference.logits(token_ids))


def test_a_mix_of_prefill_decode_and_verification_equals_transformers_for_every_family(any_model: Path):
    runner, reference = make_runner(any_model), Reference(any_model)
    long, decoding, verifying, fresh = (PagedSequence(runner) for _ in range(4))
    runner.forward([long.chunk(random_tokens(41, seed=1), 0), decoding.chunk(random_tokens(19, seed=2), 0)])
    runner.forward([verifying.chunk(random_tokens(7, seed=3))])
    logits = runner.forward(
        [
            long.chunk(random_tokens(33, seed=4), 0),
            decoding.chunk(random_tokens(1, seed=5)),
            verifying.chunk(random_tokens(5, seed=6)),
            fresh.chunk(random_tokens(50, seed=7), 2),
        ]
    )
    assert logits.rows.shape == (0 + 1 + 5 + 2, runner.vocab_size)
    assert logits.rows.dtype == torch.float32
    for index, (sequence, num_logits) in enumerate([(long, 0), (decoding, 1), (verifying, 5), (fresh, 2)]):
        expected = reference.logits(sequence.token_ids)
        assert_close(logits.of(index), expected[len(expected) - num_logits :])


@pytest.mark.parametrize("sizes", [[1, 2, 3, 5, 7, 11], [29], [13, 1, 15], [1] * 29, [4, 4, 8, 8, 5], [28, 1]])
def test_chunked_prefill_with_odd_sizes_equals_one_go(runner: ModelRunner, reference: Reference, sizes: list[int]):
    token_ids, sequence = random_tokens(29, seed=8), PagedSequence(runner)
    rows, start = [], 0
    for size in sizes:
        rows.append(runner.forward([sequence.chunk(token_ids[start : start + size])]).rows)
        start += size
    assert_close(torch.cat(rows), reference.logits(token_ids))


@torch.inference_mode()
def test_decoding_token_by_token_equals_transformers_with_its_own_cache(runner: ModelRunner, reference: Reference):
    sequence, cache = PagedSequence(runner), DynamicCache(config=reference.model.config)
    pieces = [random_tokens(6, seed=9), *([token] for token in random_tokens(12, seed=10))]
    for piece in pieces:
        expected = reference.model(torch.tensor([piece]), cache=cache, use_cache=True).logits[0]
        assert_close(runner.forward([sequence.chunk(piece)]).rows, expected)


@pytest.mark.parametrize("length", range(1, 4 * BLOCK_SIZE + 2))
def test_every_length_around_block_boundaries_prefills_and_decodes(
    runner: ModelRunner, reference: Reference, length: int
):
    sequence, token_ids = PagedSequence(runner), random_tokens(length + 3, seed=length)
    rows = [
        runner.forward([sequence.chunk(token_ids[:length])]).rows,
        runner.forward([sequence.chunk(token_ids[length : length + 1])]).rows,
        runner.forward([sequence.chunk(token_ids[length + 1 :])]).rows,
    ]
    assert_close(torch.cat(rows), reference.logits(token_ids))


def test_each_row_alone_equals_the_row_in_any_batch(llama: Path):
    lengths, steps = [3, 120, 17, 64, 8, 33, 1, 90], [1, 5, 1, 30, 4, 9, 70, 2]

    def sequences(runner: ModelRunner) -> list[PagedSequence]:
        result = [PagedSequence(runner) for _ in lengths]
        for index, sequence in enumerate(result):
            runner.forward([sequence.chunk(random_tokens(lengths[index], seed=index), 0)])
        return result

    def next_tokens(index: int) -> list[int]:
        return random_tokens(steps[index], seed=100 + index)

    runner = make_runner(llama, num_blocks=1024)
    alone = [
        runner.forward([sequence.chunk(next_tokens(index))]).rows for index, sequence in enumerate(sequences(runner))
    ]
    for order in (range(8), [7, 3, 0, 5, 1, 6, 2, 4], [1, 4, 6]):
        batch = sequences(runner)
        logits = runner.forward([batch[index].chunk(next_tokens(index)) for index in order])
        for row, index in enumerate(order):
            assert_close(logits.of(row), alone[index])


def test_a_forward_that_wants_no_logits_returns_no_rows(runner: ModelRunner):
    logits = runner.forward([PagedSequence(runner).chunk(random_tokens(5, seed=0), 0)])
    assert logits.rows.shape == (0, runner.vocab_size)
    assert logits.of(0).shape == (0, runner.vocab_size)


def test_a_short_context_beside_one_over_the_context_bucket_equals_transformers(tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=5, max_positions=2048)
    runner, reference = make_runner(folder, num_blocks=400), Reference(folder)
    long, short = PagedSequence(runner), PagedSequence(runner)
    runner.forward([long.chunk(random_tokens(700, seed=1), 0), short.chunk(random_tokens(9, seed=2), 0)])
    logits = runner.forward([short.chunk(random_tokens(4, seed=3)), long.chunk(random_tokens(5, seed=4))])
    assert_close(logits.of(0), reference.logits(short.token_ids)[-4:])
    assert_close(logits.of(1), reference.logits(long.token_ids)[-5:])
