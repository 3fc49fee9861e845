"""When KV blocks run out, guesses give way before sequences do, and the tokens stay the same."""

from __future__ import annotations

import pytest

from saguaro.types import AcceptanceMode, GenerationRequest, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio
from verifier_service.sequence import Sequence

BLOCK = 4


def request(number: int, sampling: SamplingParams) -> GenerationRequest:
    prompt = tuple(range(40 + number, 58 + 2 * number))  # no two begin alike, so that they share no block
    return GenerationRequest(str(number), prompt, sampling, max_tokens=40 + 7 * number, ignore_eos=True)


def generate_all(trio: InMemoryTrio, sampling: SamplingParams) -> list[Answer]:
    answers = [trio.submit(request(number, sampling))[1] for number in range(4)]
    trio.run(*answers)
    return answers


@pytest.mark.parametrize("num_blocks", range(28, 44, 3))
@pytest.mark.parametrize("lookahead", [4, 8])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_nobody_is_preempted_while_a_guess_holds_the_blocks_that_are_wanted(
    tiny: TinyModels, num_blocks: int, lookahead: int, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=3)
    plain = [answer.tokens for answer in generate_all(InMemoryTrio(tiny.target, None), sampling)]
    trio = InMemoryTrio(tiny.target, tiny.target, lookahead=lookahead, target_blocks=num_blocks)  # long guesses
    scheduler = trio.loop.scheduler
    on_preempt = scheduler._on_preempt

    def judged(sequence: Sequence) -> None:
        wanted = sum(-(-len(running.tokens) // BLOCK) for running in scheduler.running)
        assert wanted > num_blocks, f"{wanted} blocks would do, of {num_blocks}"
        on_preempt(sequence)

    scheduler._on_preempt = judged
    assert [answer.tokens for answer in generate_all(trio, sampling)] == plain
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("num_blocks", [30, 36])
def test_a_speculation_that_was_shortened_is_no_fault_at_the_speculator(tiny: TinyModels, num_blocks: int) -> None:
    sampling = SamplingParams(temperature=0.8, seed=3, acceptance=AcceptanceMode.REJECTION)
    trio = InMemoryTrio(tiny.target, tiny.draft, lookahead=8, target_blocks=num_blocks)
    for answer in generate_all(trio, sampling):
        assert answer.finished.speculation.speculating, answer.finished.speculation.reason
        assert answer.finished.speculation.num_accepted_tokens
    trio.assert_all_blocks_free()
