"""Many long prompts at once: each forward is bounded in tokens and bytes, and nobody's turn fails to come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from saguaro.engine.ragged_batch import Chunk, RaggedBatch, most_mask_cells
from saguaro.types import JustInTime, NotSpeculatingReason, VerificationOutcome
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier, opening

NUM_PROMPTS, PROMPT_TOKENS, CHUNK = 32, 1000, 128
RUNNING = 99


def prompts(count: int = NUM_PROMPTS, length: int = PROMPT_TOKENS) -> list[list[int]]:
    draw = random.Random(5)
    return [[draw.randrange(256) for _ in range(length)] for _ in range(count)]


def test_thirty_two_prompts_at_once_share_one_bound_of_tokens_while_others_go_on(draft: Path) -> None:
    speculator = LoneSpeculator(draft, num_blocks=12_000, prefill_chunk_tokens=CHUNK)
    verifier = Verifier(speculator)
    verifier.open(RUNNING, range(40))
    speculator.run()
    commits: dict[int, int] = {}
    verifier.answer_round(RUNNING, commits)
    first = len(speculator.forwards)
    verifier.say(opens=tuple(opening(number, tokens) for number, tokens in enumerate(prompts())))

    prefilling = NUM_PROMPTS * PROMPT_TOKENS // CHUNK
    rounds_meanwhile = 0

    def go_on() -> None:
        nonlocal rounds_meanwhile
        if len(speculator.forwards) - first <= prefilling:
            verifier.answer_round(RUNNING, commits)
            rounds_meanwhile = commits[RUNNING]

    speculator.run(go_on)
    tree_rows = (NUM_PROMPTS + 1) * verifier.budget
    assert max(forward.num_tokens for forward in speculator.forwards) <= CHUNK + tree_rows
    # 2 query heads for each of 2 KV heads: a float32 for each, each query row and each slot of its context.
    assert max(forward.mask_bytes for forward in speculator.forwards) <= 2 * 4 * 2 * (CHUNK + tree_rows) * 1600
    assert rounds_meanwhile > prefilling // 10
    assert not verifier.refusals
    for number in range(NUM_PROMPTS):
        assert verifier.entries_of(number)[-1].complete


@pytest.mark.parametrize("most_bytes", [1 << 20, 4 << 20])
def test_attention_masks_stay_within_their_bytes_whatever_the_context(draft: Path, most_bytes: int) -> None:
    speculator = LoneSpeculator(draft, num_blocks=12_000, prefill_chunk_tokens=512, max_forward_bytes=most_bytes)
    verifier = Verifier(speculator, budget=64)
    verifier.say(opens=tuple(opening(number, tokens) for number, tokens in enumerate(prompts(6))))
    speculator.run()
    assert max(forward.mask_bytes for forward in speculator.forwards) <= most_bytes
    assert max(forward.num_tokens for forward in speculator.forwards) <= 512 + 6 * 64
    for number in range(6):
        assert verifier.entries_of(number)[-1].complete


def test_prompts_that_begin_alike_compute_their_beginning_once(draft: Path) -> None:
    speculator = LoneSpeculator(draft, num_blocks=4000, prefill_chunk_tokens=CHUNK)
    verifier = Verifier(speculator)
    [common] = prompts(1)
    verifier.say(opens=tuple(opening(number, [*common, *[number] * 30]) for number in range(8)))
    speculator.run()
    trees = 8 * verifier.budget * verifier.lookahead
    # The first computes all; of what it computed the others lack at most what was in work while their own began.
    assert sum(forward.num_tokens for forward in speculator.forwards) <= PROMPT_TOKENS + 8 * 30 + CHUNK + trees
    assert all(verifier.entries_of(number)[-1].complete for number in range(8))


def test_a_verifier_that_always_waits_just_in_time_does_not_stop_another(draft: Path) -> None:
    speculator = LoneSpeculator(draft, num_blocks=2000)
    greedy, other = Verifier(speculator, lookahead=16, budget=1), Verifier(speculator)
    for number in range(8):
        greedy.open(number, range(number, number + 20))
    speculator.run()
    rounds = [0] * 8

    def ask_again() -> None:
        for number, round in enumerate(rounds):
            if round < 50 and (round == 0 or any(item.round == round - 1 for item in greedy.entries_of(number))):
                greedy.commit(number, round, VerificationOutcome(0, 7), JustInTime(16))
                rounds[number] += 1

    ask_again()
    other.open(1, range(60, 90))
    while not other.entries_of(1):
        assert speculator.scheduler.step()
        ask_again()
    assert max(rounds) < 20


@pytest.mark.parametrize("num_blocks", range(56, 64))
def test_a_prompt_too_many_gives_its_blocks_to_who_runs(draft: Path, num_blocks: int) -> None:
    speculator = LoneSpeculator(draft, num_blocks=num_blocks, prefill_chunk_tokens=8)
    verifier = Verifier(speculator)
    verifier.open(1, prompts(1, 220)[0])
    verifier.open(RUNNING, range(16))
    commits: dict[int, int] = {}

    def go_on() -> None:
        if commits.get(RUNNING, 0) < 20:
            verifier.answer_round(RUNNING, commits)

    speculator.run(go_on)
    assert verifier.refusals == [(1, NotSpeculatingReason.OVERLOADED)]
    assert commits[RUNNING] == 20


def test_a_sequence_longer_than_the_pool_is_refused_for_good_before_it_costs_anything(draft: Path) -> None:
    speculator = LoneSpeculator(draft, num_blocks=60)
    verifier = Verifier(speculator)
    verifier.open(1, prompts(1, 300)[0])
    speculator.run()
    assert verifier.refusals == [(1, NotSpeculatingReason.CONTEXT_LIMIT)]
    assert not speculator.forwards


def test_the_bound_of_mask_cells_holds_for_any_batch() -> None:
    draw = np.random.default_rng(3)
    for _ in range(200):
        chunks: Sequence[Chunk] = [_chunk(draw) for _ in range(int(draw.integers(1, 12)))]
        batch = RaggedBatch.build(chunks)
        cells = sum(group.mask.numel() for group in batch.groups if group.mask is not None)
        assert cells <= sum(most_mask_cells(len(chunk.token_ids), len(chunk.context_slots)) for chunk in chunks)


def _chunk(draw: np.random.Generator) -> Chunk:
    num_tokens = int(draw.integers(1, 70))
    context = num_tokens + int(draw.integers(0, 3000))
    slots = np.arange(context)
    return Chunk([1] * num_tokens, slots[-num_tokens:], slots[-num_tokens:], slots)
