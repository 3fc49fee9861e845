"""Stop strings, logprobs and several choices through a real gateway, the verifier faked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saguaro.client import Answer, AsyncClient
from saguaro.errors import InvalidRequest, SequenceFault, Unavailable
from saguaro.types import AcceptanceMode, FinishReason, TokenLogprobs
from tests.unit.gateway.house import RUN_LENGTH, running_house

ANSWER = "The saguaro 🌵 is größer als ein Haus."


async def answer_to(text_folder: Path, fake: dict[str, Any] | None = None, **options: Any) -> tuple[Answer, list[str]]:
    """The answer, and which generations the verifier was told to end."""
    async with running_house(text_folder, ANSWER, **(fake or {})) as house, AsyncClient(house.address) as client:
        return await client.generate("Tell", **options).finish(), house.verifier.stopped_ids


@pytest.mark.parametrize("stop", ["saguaro", "🌵", " is gr", "ö", "e", "Haus."])
def test_ids_text_logprobs_and_usage_end_with_the_token_that_completes_the_stop_string(
    text_folder: Path, stop: str
) -> None:
    async def scenario() -> None:
        whole, _ = await answer_to(text_folder)
        async with running_house(text_folder, ANSWER) as house:
            decode = house.text.decode
        end = next(i for i in range(len(whole.token_ids) + 1) if stop in decode(list(whole.token_ids[:i])))
        answer, _ = await answer_to(text_folder, stop=[stop, "never"], logprobs=True)
        assert answer.text == ANSWER[: ANSWER.index(stop)]
        assert answer.token_ids == whole.token_ids[:end]
        assert answer.logprobs == tuple(TokenLogprobs(-float(token)) for token in answer.token_ids)
        assert answer.num_generated_tokens == len(answer.token_ids)
        assert answer.finish_reason is FinishReason.STOP

    asyncio.run(scenario())


def test_the_verifier_is_told_to_stop_at_once_and_no_delta_holds_anything_past_the_stop_string(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        # The verifier would never end by itself after these two runs.
        async with (
            running_house(text_folder, ANSWER, hang_after_runs=2) as house,
            AsyncClient(house.address) as client,
            asyncio.timeout(20),
        ):
            ids = house.verifier.answer[: 2 * RUN_LENGTH]
            stop = house.text.decode(list(ids[1 : RUN_LENGTH + 1]))  # complete with the second run's first token
            stream = client.generate("Tell", stop=stop)
            deltas = [delta async for delta in stream]
            assert stop not in "".join(delta.text for delta in deltas)
            assert sum(len(delta.token_ids) for delta in deltas) == RUN_LENGTH + 1
            assert stream.result.finish_reason is FinishReason.STOP
            assert house.verifier.stopped_ids == [stream.result.request_id]

    asyncio.run(scenario())


def test_what_was_held_back_comes_out_when_the_answer_ends_otherwise(text_folder: Path) -> None:
    async def scenario() -> None:
        answer, aborted = await answer_to(text_folder, stop=["Haus.!", ".x"])
        assert answer.text == ANSWER
        assert aborted == []

    asyncio.run(scenario())


def test_a_stop_string_among_the_first_min_tokens_does_not_count(text_folder: Path) -> None:
    async def scenario() -> None:
        whole, _ = await answer_to(text_folder)
        early, _ = await answer_to(text_folder, stop="e")
        num_early = early.num_generated_tokens
        later, _ = await answer_to(text_folder, stop="e", min_tokens=num_early)
        assert later.token_ids[:num_early] == early.token_ids
        assert early.num_generated_tokens < later.num_generated_tokens < whole.num_generated_tokens
        assert ANSWER.startswith(later.text + "e")
        same, _ = await answer_to(text_folder, stop="e", min_tokens=num_early - 1)
        assert same.token_ids == early.token_ids

    asyncio.run(scenario())


def test_choices_share_one_prompt_and_differ_in_their_noise_alone(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, ANSWER) as house, AsyncClient(house.address) as client:
            stream = client.generate("Tell", n=3, seed=5, temperature=1.0, prompt_logprobs=True)
            deltas = [delta async for delta in stream]
            first, *others = house.verifier.requests
            assert sorted(request.sampling.choice for request in house.verifier.requests) == [0, 1, 2]
            assert {request.sampling.seed for request in house.verifier.requests} == {5}
            assert len({request.request_id for request in house.verifier.requests}) == 3
            assert first.prompt_logprobs
            assert not any(request.prompt_logprobs for request in others)
            for choice, result in enumerate(stream.results):
                assert (result.choice, result.text, result.acceptance_mode) == (choice, ANSWER, AcceptanceMode.COUPLED)
                assert "".join(delta.text for delta in deltas if delta.choice == choice) == ANSWER
                assert len(result.prompt_logprobs) == len(result.prompt_token_ids) - 1
            assert stream.result is stream.results[0]

    asyncio.run(scenario())


def test_later_choices_begin_when_the_first_has_its_first_tokens(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, ANSWER) as house, AsyncClient(house.address) as client:
            await client.generate("Tell", n=3).finish()
            assert house.verifier.runs_before[0] == 0
            assert min(house.verifier.runs_before[1:]) >= 1

    asyncio.run(scenario())


def test_a_fault_of_one_choice_ends_all(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, ANSWER, error=SequenceFault("this one broke"), error_after_runs=1) as house,
            AsyncClient(house.address) as client,
        ):
            with pytest.raises(SequenceFault, match="this one broke"):
                await client.generate("Tell", n=4).finish()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_choices_count_as_answers_against_the_gateway_s_limit(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, max_concurrent=2, hang_after_runs=1) as house,
            AsyncClient(house.address) as client,
        ):
            with pytest.raises(InvalidRequest, match="n is 3; this gateway takes 2 answers at once") as caught:
                await client.generate("Hi", n=3).finish()
            assert caught.value.field == "n"
            async with client.generate("Hi") as stream:
                await anext(aiter(stream))
                with pytest.raises(Unavailable, match="1 answers are in flight; this gateway takes 2"):
                    await client.generate("Hi", n=2).finish()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"logit_bias": {10**6: 1.0}}, "sampling.logit_bias"),
        ({"stop_token_ids": [10**6]}, "sampling.stop_token_ids"),
    ],
)
def test_tokens_that_the_model_does_not_have_are_refused_by_the_field(
    text_folder: Path, options: dict[str, Any], field: str
) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidRequest, match="token id 1000000 at position 0") as caught:
            await answer_to(text_folder, **options)
        assert caught.value.field == field

    asyncio.run(scenario())
