"""One sequence's fault ends that sequence; the others have the tokens that they would have had without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
import torch

from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import InvalidRequest, SequenceFault, Unavailable
from saguaro.types import AcceptanceMode, GenerationRequest, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio

POISON = 255
PROMPT = tuple(range(40, 63))
POISONED = (*range(70, 90), POISON)
EVERY_TOKEN = tuple(range(258))


def request(prompt: tuple[int, ...] = PROMPT, **sampling: object) -> GenerationRequest:
    return GenerationRequest("r", prompt, max_tokens=24, sampling=SamplingParams(**sampling))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(tiny: TinyModels) -> list[int]:
    return InMemoryTrio(tiny.target, None).generate(request()).tokens


class Breaking:
    """Raises where `breaks` says so of a forward's chunks, and counts."""

    def __init__(self, trio: InMemoryTrio, breaks: Callable[[Sequence[Chunk]], bool]) -> None:
        self.num_forwards = self.num_failures = 0
        self._forward, self._breaks = trio.target.forward, breaks
        trio.target.forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, chunks: Sequence[Chunk]) -> Logits:
        self.num_forwards += 1
        if self._breaks(chunks):
            self.num_failures += 1
            raise RuntimeError("CUDA error: the test's")
        return self._forward(chunks)


def holds_poison(chunks: Sequence[Chunk]) -> bool:
    return any(POISON in chunk.token_ids for chunk in chunks)


def error_of(answer: Answer) -> Exception:
    error = answer.events[-1]
    assert isinstance(error, Exception), error
    return error


@pytest.mark.parametrize("num_running", [0, 1, 7])
def test_a_forward_that_one_prompt_breaks_ends_that_one_alone(
    tiny: TinyModels, plain: list[int], num_running: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, max_running=16)
    bystanders = [trio.submit(request())[1] for _ in range(num_running)]
    for _ in range(4):
        trio.step()
    broken = Breaking(trio, holds_poison)
    _, poisoned = trio.submit(request(POISONED))
    newcomers = [trio.submit(request())[1] for _ in range(3)]
    trio.run(poisoned, *bystanders, *newcomers)
    assert isinstance(error_of(poisoned), SequenceFault)
    assert re.fullmatch("request r failed inside the verifier; its log has the cause", str(error_of(poisoned)))
    assert [answer.tokens for answer in (*bystanders, *newcomers)] == [plain] * (num_running + 3)
    assert broken.num_failures <= 6
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("failing", [1, 2, 5])
def test_a_forward_that_fails_once_costs_no_answer(tiny: TinyModels, plain: list[int], failing: int) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    broken = Breaking(trio, lambda chunks: broken.num_forwards == failing)
    answers = [trio.submit(request())[1] for _ in range(3)]
    trio.run(*answers)
    assert broken.num_failures == 1
    assert [answer.tokens for answer in answers] == [plain] * 3


def test_a_batch_too_large_for_the_device_goes_on_in_parts(tiny: TinyModels, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    Breaking(trio, lambda chunks: len(chunks) > 2)
    answers = [trio.submit(request())[1] for _ in range(7)]
    trio.run(*answers)
    assert [answer.tokens for answer in answers] == [plain] * 7


def test_a_device_that_fails_every_forward_ends_all_with_unavailable_after_few_tries(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, None, max_running=4)
    answers = [trio.submit(request())[1] for _ in range(6)]
    broken = Breaking(trio, lambda chunks: True)
    with pytest.raises(Unavailable, match="forwards fail") as raised:
        trio.step()
    trio.loop.fail_running(raised.value)  # as the engine thread does
    assert broken.num_forwards <= 6
    assert all(isinstance(error_of(answer), Unavailable) for answer in answers)
    trio.assert_all_blocks_free()


def test_an_end_token_that_the_model_does_not_have_ends_the_requests_that_ban_it(
    tiny: TinyModels, plain: list[int]
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, eos_token_ids=[9999])
    _, bystander = trio.submit(request())
    _, banning = trio.submit(request(min_tokens=5))
    trio.run(bystander, banning)
    assert isinstance(error_of(banning), SequenceFault)
    assert bystander.tokens == plain


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("mode", list(AcceptanceMode))
def test_a_request_that_bans_every_token_is_refused_alone(
    tiny: TinyModels, plain: list[int], mode: AcceptanceMode, temperature: float
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    banning = request(stop_token_ids=EVERY_TOKEN, min_tokens=5, temperature=temperature, acceptance=mode)
    sampled = request(temperature=temperature, acceptance=AcceptanceMode.COUPLED, seed=7)
    answers = [trio.submit(each)[1] for each in (request(), banning, sampled)]
    trio.run(*answers)
    error = error_of(answers[1])
    assert isinstance(error, InvalidRequest), error
    assert "no token is left to choose at output token 0" in str(error)
    assert answers[0].tokens == plain
    assert answers[2].tokens == InMemoryTrio(tiny.target, None).generate(sampled).tokens


@pytest.mark.parametrize("mode", list(AcceptanceMode))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_end_their_sequence_alone(
    tiny: TinyModels, plain: list[int], mode: AcceptanceMode, temperature: float, value: float
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    forward = trio.target.forward

    def overflowing(chunks: Sequence[Chunk]) -> Logits:
        logits = Logits((computed := forward(chunks)).rows.clone(), computed.offsets)
        for index, chunk in enumerate(chunks):
            if POISON in chunk.token_ids and chunk.num_logits:
                logits.of(index)[:, 3] = value
        return logits

    trio.target.forward = overflowing  # type: ignore[method-assign,assignment]
    _, bystander = trio.submit(request())
    _, poisoned = trio.submit(request(POISONED, temperature=temperature, acceptance=mode))
    trio.run(bystander, poisoned)
    assert isinstance(error_of(poisoned), SequenceFault)
    assert "not finite" in str(error_of(poisoned))
    assert bystander.tokens == plain


@pytest.mark.parametrize("step", ["commit", "next_chunk", "adopt_prefix", "opened", "end_round"])
def test_a_fault_in_the_state_of_one_sequence_ends_that_one_alone(
    tiny: TinyModels, plain: list[int], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    doomed, answer = trio.submit(request())
    _, bystander = trio.submit(request())

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a test's fault")

    monkeypatch.setattr(doomed, step, fail)
    trio.run(answer, bystander)
    assert isinstance(error_of(answer), SequenceFault)
    assert "ZeroDivision" not in str(error_of(answer))
    assert bystander.tokens == plain
    assert trio.target.block_manager.num_free == trio.target.block_manager.num_blocks


def test_a_message_that_fails_costs_no_answer(tiny: TinyModels, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, answer = trio.submit(request())
    trio.step()
    trio.loop.post(lambda: torch.zeros(1)[2].item())  # IndexError
    trio.run(answer)
    assert answer.tokens == plain


def test_a_fault_in_what_the_speculator_is_told_costs_no_answer(
    tiny: TinyModels, plain: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    answers = [trio.submit(request())[1] for _ in range(2)]
    trio.step()

    def fail(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("a test's fault")

    monkeypatch.setattr(trio.speculations, "flush", fail)
    trio.run(*answers)
    assert [answer.tokens for answer in answers] == [plain] * 2
    assert "a fault inside the verifier" in answers[0].finished.speculation.reason
