"""The next turn of a conversation, at the verifier: what the turn before computed is there, its answer included."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saguaro.types import GenerationRequest, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace

BLOCK_SIZE = 4
NEW = (7, 8, 9)


def ask(trio: InMemoryTrio, prompt: tuple[int, ...], max_tokens: int, **sampling: float) -> Answer:
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return trio.generate(GenerationRequest("r", prompt, params, max_tokens=max_tokens))


def whole_blocks(num_tokens: int) -> int:
    return num_tokens // BLOCK_SIZE * BLOCK_SIZE


def num_cached_after(prompt: tuple[int, ...], emitted: list[int]) -> int:
    """What the next turn finds: all whole blocks of what has KV. The last token emitted was never an input."""
    return whole_blocks(len(prompt) + len(emitted) - 1)


@lru_cache(maxsize=64)
def cold(target: Path, prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    return tuple(ask(InMemoryTrio(target, None), prompt, max_tokens).tokens)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.integers(1, 14),
    st.integers(1, 14),
    st.integers(0, 9),
    st.sampled_from(["draft", "random_draft", "target", None]),
    st.sampled_from([Pace.FAST, Pace.STEPWISE]),
    st.sampled_from([3, 64]),
)
def test_the_next_turn_finds_every_whole_block_whatever_was_guessed_and_says_what_a_cold_verifier_says(
    tiny: TinyModels, num_prompt: int, num_emitted: int, num_new: int, draft: str | None, pace: Pace, chunk: int
) -> None:
    trio = InMemoryTrio(
        tiny.target, None if draft is None else getattr(tiny, draft), pace=pace, prefill_chunk_tokens=chunk
    )
    prompt, following = tuple(range(40, 40 + num_prompt)), tuple(range(100, 100 + num_new))
    emitted = ask(trio, prompt, num_emitted).tokens
    assert len(emitted) == num_emitted
    second = (*prompt, *emitted, *following)
    answer = ask(trio, second, 6)
    assert answer.finished.num_cached_prompt_tokens == num_cached_after(prompt, emitted)
    assert tuple(answer.tokens) == cold(tiny.target, second, 6)
    trio.assert_all_blocks_free()


def test_ten_turns_each_compute_less_than_two_blocks_and_what_is_new(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    history: tuple[int, ...] = tuple(range(40, 50))
    for turn in range(10):
        answer = ask(trio, history, 4, temperature=0.8)
        if turn:
            num_computed = len(history) - answer.finished.num_cached_prompt_tokens
            assert num_computed <= len(NEW) + BLOCK_SIZE
        history = (*history, *answer.tokens, *NEW)


@pytest.mark.parametrize("num_steps", [1, 2, 4, 7])
def test_a_turn_that_was_aborted_leaves_its_blocks_to_the_one_that_is_sent_again(
    tiny: TinyModels, num_steps: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    prompt = tuple(range(40, 59))
    sequence, _ = trio.submit(GenerationRequest("r", prompt, max_tokens=30))
    for _ in range(num_steps):
        trio.step()
    trio.loop.abort(sequence)
    trio.assert_all_blocks_free()
    again = ask(trio, prompt, 8)
    assert again.finished.num_cached_prompt_tokens == whole_blocks(len(prompt) - 1)
    assert tuple(again.tokens) == cold(tiny.target, prompt, 8)


def test_two_conversations_that_part_share_what_they_have_in_common_and_nothing_else(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    prompt = tuple(range(40, 53))
    emitted = ask(trio, prompt, 9).tokens
    shared = len(prompt) + 4
    other = (*prompt, *emitted[:4], 200, 201, 202, 203, 204)
    answer = ask(trio, other, 6)
    assert answer.finished.num_cached_prompt_tokens == whole_blocks(shared)
    assert tuple(answer.tokens) == cold(tiny.target, other, 6)
    mine = (*prompt, *emitted, *NEW)
    assert ask(trio, mine, 6).finished.num_cached_prompt_tokens == num_cached_after(prompt, emitted)


def test_a_conversation_whose_memory_others_took_is_computed_again(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, None, target_blocks=16)
    prompt = tuple(range(40, 60))
    emitted = ask(trio, prompt, 6).tokens
    ask(trio, tuple(range(150, 205)), 8)  # needs all 16 blocks
    second = (*prompt, *emitted, *NEW)
    answer = ask(trio, second, 6)
    assert answer.finished.num_cached_prompt_tokens == 0
    assert tuple(answer.tokens) == cold(tiny.target, second, 6)
