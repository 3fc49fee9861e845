"""A verifier is lost in the midst of answers: they go on at another one, and nobody can tell from what they say."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.text import TextModel
from gateway.verifiers import Generation
from saguaro.client.answer import AnswerBuilder
from saguaro.errors import SequenceFault, Unavailable
from saguaro.types import AcceptanceMode, FinishReason, GenerationRequest, SamplingParams, TokenLogprobs, TokenRun
from tests.unit.gateway.house import RUN_LENGTH
from tests.unit.gateway.several_verifiers import ANSWER, PROMPT, Verifiers, fake_for, request, running_verifiers


async def lose(verifiers: Verifiers, index: int) -> None:
    """Stop a verifier once a generation hangs there."""
    fake = verifiers.fakes[index]
    await asyncio.wait_for(fake.hangs.wait(), 10)
    await asyncio.sleep(0.05)  # what was sent has arrived, or has not: either must do
    await verifiers.servers[index].stop()


@pytest.mark.parametrize("num_runs", [0, 1, 2, 3, 4, "all"])
def test_ids_text_and_logprobs_go_on_over_the_break(text_folder: Path, num_runs: int | str) -> None:
    async def scenario() -> None:
        tokens = fake_for(TextModel.from_folder(text_folder)).answer
        num_before = -(-len(tokens) // RUN_LENGTH) if num_runs == "all" else int(num_runs)
        options: list[dict[str, object]] = [{"hang_after_runs": num_before}, {"num_running": 9}]
        async with running_verifiers(text_folder, *options) as verifiers:
            await asyncio.sleep(0.6)  # the second has reported its load
            losing = asyncio.create_task(lose(verifiers, 0))
            (answer,) = await verifiers.answer(request(logprobs=True, include_rounds=True))
            await losing
            first, second = verifiers.fakes
            assert answer.token_ids == second.answer
            assert answer.text == ANSWER
            assert answer.logprobs == tuple(TokenLogprobs(-float(token)) for token in answer.token_ids)
            assert answer.num_generated_tokens == len(answer.token_ids)
            assert answer.finish_reason is FinishReason.STOP
            (resumed,) = second.requests
            assert resumed.resumption is not None
            assert resumed.resumption.token_ids == first.answer[: RUN_LENGTH * num_before]
            assert resumed.resumption.num_rounds == num_before
            assert resumed.sampling == SamplingParams(seed=answer.seed, acceptance=AcceptanceMode.COUPLED)
            # The fake reports two rounds, whatever it was asked; those of the lost one come on top.
            assert answer.speculation.num_rounds == 2 + max(num_before - 1, 0)
            assert answer.speculation.num_draft_tokens == 4 + RUN_LENGTH * num_before
            assert [item.round for item in answer.speculation.rounds][:num_before] == list(range(num_before))

    asyncio.run(scenario())


@pytest.mark.parametrize("stop", ["saguaro 🦎", "aro", "größer als ein"])
def test_a_stop_string_that_lies_over_the_break_is_found(text_folder: Path, stop: str) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}) as verifiers:
            (whole,) = await verifiers.answer(request(stop=(stop,)))
        for num_runs in range(1, len(whole.token_ids) // RUN_LENGTH + 1):
            async with running_verifiers(text_folder, {"hang_after_runs": num_runs}) as verifiers:
                losing = asyncio.create_task(lose_and_replace(verifiers))
                (answer,) = await verifiers.answer(request(stop=(stop,)))
                await losing
                assert (answer.text, answer.token_ids) == (whole.text, whole.token_ids)
                assert answer.finish_reason is FinishReason.STOP

    asyncio.run(scenario())


async def lose_and_replace(verifiers: Verifiers) -> None:
    """The only verifier is restarted."""
    await lose(verifiers, 0)
    await verifiers.restart(0, fake_for(verifiers.text))


def test_every_choice_goes_on(text_folder: Path) -> None:
    async def scenario() -> None:
        options: list[dict[str, object]] = [{"hang_after_runs": 3}, {"num_running": 9}]
        async with running_verifiers(text_folder, *options) as verifiers:
            await asyncio.sleep(0.6)
            losing = asyncio.create_task(lose(verifiers, 0))
            answers = await verifiers.answer(request(n=3, prompt_logprobs=True, sampling=SamplingParams(1.0)))
            await losing
            assert [answer.text for answer in answers] == [ANSWER] * 3
            assert [answer.choice for answer in answers] == [0, 1, 2]
            assert sorted(item.sampling.choice for item in verifiers.fakes[1].requests) == [0, 1, 2]
            assert not any(item.prompt_logprobs for item in verifiers.fakes[1].requests)  # they came already

    asyncio.run(scenario())


def test_an_only_verifier_that_comes_back_in_time_goes_on_and_one_that_does_not_is_told_with_the_time(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {"hang_after_runs": 2}) as verifiers:
            losing = asyncio.create_task(lose_and_replace(verifiers))
            (answer,) = await verifiers.answer(request())
            await losing
            assert answer.text == ANSWER
        async with running_verifiers(text_folder, {"hang_after_runs": 2}, patience_seconds=0.4) as verifiers:
            losing = asyncio.create_task(lose(verifiers, 0))
            with pytest.raises(Unavailable, match=r"no verifier went on within 0\.4 s") as lost:
                await verifiers.answer(request())
            assert lost.value.retry_after_seconds > 0
            await losing

    asyncio.run(scenario())


def test_what_no_verifier_has_admitted_goes_to_another_or_is_refused_at_once(text_folder: Path) -> None:
    async def scenario() -> None:
        full: dict[str, object] = {"refusal": Unavailable("queue full", 7.0)}
        async with running_verifiers(text_folder, full, {"num_running": 9}) as verifiers:
            await asyncio.sleep(0.6)
            (answer,) = await verifiers.answer(request())
            assert answer.text == ANSWER
            assert len(verifiers.fakes[0].requests) == 1
            assert len(verifiers.pool.usable) == 2  # who says so himself is not ejected
            verifiers.fakes[1].refusal = Unavailable("here, too", 7.0)
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"queue full|here, too") as refused:
                await verifiers.answer(request())
            assert time.monotonic() - began < 5
            assert refused.value.retry_after_seconds == 7.0

    asyncio.run(scenario())


def test_ids_that_no_tokenizer_knows_are_carried_over_the_break(text_folder: Path) -> None:
    async def scenario() -> None:
        answer = (5, 6, 7, 1 << 30, 8, (1 << 32) - 1, 9, 10, 1)
        says: dict[str, object] = {"answer": answer}
        options = [says | {"hang_after_runs": 2}, says | {"num_running": 9}]
        async with running_verifiers(text_folder, *options) as verifiers:
            asked = GenerationRequest("r", PROMPT, SamplingParams())
            await asyncio.sleep(0.6)
            generation = Generation(verifiers.pool, asked, verifiers.pool.info().model, patience_seconds=5)
            losing = asyncio.create_task(lose(verifiers, 0))
            found: list[int] = []
            async for event in generation.events(20):
                if isinstance(event, TokenRun):
                    found += event.token_ids
            await losing
            assert tuple(found) == answer
            (resumed,) = verifiers.fakes[1].requests
            assert resumed.resumption is not None
            assert resumed.resumption.token_ids == answer[:6]

    asyncio.run(scenario())


@pytest.mark.parametrize("num_runs", [0, 1])
def test_a_fault_is_tried_once_elsewhere_and_two_are_told(text_folder: Path, num_runs: int) -> None:
    async def scenario() -> None:
        broken: dict[str, object] = {"error": SequenceFault("this one broke"), "error_after_runs": num_runs}
        async with running_verifiers(text_folder, broken, {"num_running": 9}, {"num_running": 9}) as verifiers:
            await asyncio.sleep(0.6)
            (answer,) = await verifiers.answer(request())
            assert answer.text == ANSWER
            for fake in verifiers.fakes:
                fake.error, fake.error_after_runs = SequenceFault("this one broke"), 2
                fake.requests.clear()
            with pytest.raises(SequenceFault, match="this one broke"):
                await verifiers.answer(request())
            assert sum(len(fake.requests) for fake in verifiers.fakes) == 2

    asyncio.run(scenario())


def test_a_verifier_that_is_lost_when_its_answer_had_all_it_wanted_costs_nothing(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {"hang_after_runs": 4}) as verifiers:

            class Deaf(asyncio.Event):
                def set(self) -> None:
                    """The last event never comes."""

            verifiers.fakes[0].stopped = Deaf()
            losing = asyncio.create_task(lose(verifiers, 0))
            (answer,) = await verifiers.answer(request(stop=("saguar",)))
            await losing
            assert (answer.text, answer.finish_reason) == ("The ", FinishReason.STOP)
            assert answer.num_generated_tokens == len(answer.token_ids)
            assert answer.speculation.num_rounds == 3

    asyncio.run(scenario())


def test_a_draining_verifier_gets_nothing_new_and_hands_over_what_does_not_end_in_time(text_folder: Path) -> None:
    async def scenario() -> None:
        options: list[dict[str, object]] = [{"hang_after_runs": 2}, {"num_running": 9}]
        async with running_verifiers(text_folder, *options) as verifiers:
            await asyncio.sleep(0.6)
            builder = AnswerBuilder(0.0)
            events = verifiers.answers.generate(request(), "old", timeout_seconds=30)
            builder.accept(await anext(events), 0.0)
            draining = asyncio.create_task(verifiers.servers[0].stop(drain_seconds=0.7))
            while len(verifiers.pool.usable) == 2:
                assert await verifiers.pool.wait_for_change(10)
            assert "starting or draining" in verifiers.pool.complaints
            (new,) = await verifiers.answer(request(), "new")
            assert new.text == ANSWER
            assert [item.request_id for item in verifiers.fakes[0].requests] == ["old"]
            async for event in events:
                builder.accept(event, 0.0)
            await draining
            assert builder.results is not None
            assert builder.results[0].text == ANSWER

    asyncio.run(scenario())
