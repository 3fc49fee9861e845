"""Generate through a real gateway on a real socket, the verifier faked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from saguaro.client import NO_RETRY, Answer, AsyncClient, ChatMessage
from saguaro.errors import DeadlineExceeded, InvalidRequest, ModelNotFound, SequenceFault, Unavailable
from saguaro.types import FinishReason, TokenProvenance
from tests.unit.gateway.house import (
    CONTEXT_LIMIT,
    ROUNDS,
    FakeVerifier,
    House,
    running_house,
    serving,
    verifier_on,
)

ANSWER = "The saguaro 🌵 is größer."


def test_deltas_concatenate_to_the_answer_and_tokens_come_with_their_provenance(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, ANSWER) as house, AsyncClient(house.address) as client:
            stream = client.generate("Tell", max_tokens=50, include_rounds=True)
            deltas = [delta async for delta in stream]
            result = stream.result
            assert "".join(delta.text for delta in deltas) == result.text == ANSWER
            assert result.token_ids == house.verifier.answer
            assert result.prompt_token_ids == house.text.encode("Tell")
            assert result.finish_reason is FinishReason.STOP
            assert result.num_generated_tokens == len(house.verifier.answer)
            assert result.speculation.rounds == ROUNDS
            assert result.mean_acceptance_length == 3.0
            assert deltas[0].provenance[-1] is TokenProvenance.BONUS
            assert len(deltas) > 1

    asyncio.run(scenario())


def test_an_answer_cut_inside_a_character_ends_with_what_the_tokenizer_prints_for_it(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, "a ಠ") as house, AsyncClient(house.address) as client:
            answer = await client.generate("Tell", max_tokens=len(house.verifier.answer) - 2).finish()
            assert answer.finish_reason is FinishReason.LENGTH
            assert answer.text == house.text.decode(list(answer.token_ids)) == "a \N{REPLACEMENT CHARACTER}"

    asyncio.run(scenario())


def test_the_verifier_gets_resolved_parameters_and_the_request_id_of_the_answer(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            chat = [ChatMessage("user", "Hi")]
            answer = await client.generate(
                chat, temperature=0.7, top_p=0.9, top_k=40, seed=11, max_tokens=7, speculation=False, ignore_eos=True
            ).finish()
            (asked,) = house.verifier.requests
            assert asked.prompt == house.text.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
            sampling = asked.sampling
            assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.7, 0.9, 40, 11)
            assert (asked.max_tokens, asked.disable_speculation, asked.ignore_eos) == (7, True, True)
            assert asked.request_id == answer.request_id

    asyncio.run(scenario())


def test_without_a_seed_each_answer_gets_its_own_and_says_which(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            answers = [await client.generate("Hi", temperature=1).finish() for _ in range(3)]
            assert [answer.seed for answer in answers] == [r.sampling.seed for r in house.verifier.requests]
            # Three equal draws of 63 bits: odds of 1e-37.
            assert len({answer.seed for answer in answers}) == 3

    asyncio.run(scenario())


def test_a_seed_of_zero_is_a_seed(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            assert (await client.generate("Hi", temperature=1, seed=0).finish()).seed == 0

    asyncio.run(scenario())


async def refused(house: House, message: str, kind: type[Exception], prompt: object, **options: object) -> Exception:
    async with AsyncClient(house.address) as client:
        with pytest.raises(kind, match=message) as caught:
            await client.generate(prompt, **options).finish()  # type: ignore[arg-type]
    assert not house.verifier.requests, "a refused request must not reach the verifier"
    return caught.value


def test_bad_requests_are_refused_with_the_number_given_and_the_bound(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house:
            await refused(house, 'no model "gpt" here; served is "fake"', ModelNotFound, "Hi", model="gpt")
            await refused(house, "the prompt is empty", InvalidRequest, "")
            long = [5] * CONTEXT_LIMIT
            sizes = f"prompt has {CONTEXT_LIMIT} tokens; the context limit is {CONTEXT_LIMIT}, and at least 1"
            await refused(house, sizes, InvalidRequest, long)
            size = house.text.vocabulary_size
            error = await refused(house, f"token id {size} at position 1", InvalidRequest, [5, size])
            assert isinstance(error, InvalidRequest)
            assert error.field == "prompt"
            await refused(house, "no robots", InvalidRequest, [{"role": "robot", "content": "beep"}])

    asyncio.run(scenario())


def test_the_longest_prompt_that_leaves_one_token_is_served(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            await client.generate([5] * (CONTEXT_LIMIT - 1)).finish()
            assert len(house.verifier.requests[0].prompt) == CONTEXT_LIMIT - 1

    asyncio.run(scenario())


def test_leaving_a_stream_early_ends_the_generation_at_the_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, AsyncClient(house.address) as client:
            async with client.generate("Hi") as stream:
                async for _ in stream:
                    break
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_a_client_that_vanishes_ends_the_generation_at_the_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house:
            client = AsyncClient(house.address)
            stream = client.generate("Hi")
            await anext(aiter(stream))
            await client.close()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_the_client_s_deadline_ends_the_generation_at_the_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, AsyncClient(house.address) as client:
            with pytest.raises(DeadlineExceeded, match="not finish"):
                await client.generate("Hi", timeout_seconds=0.3).finish()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)

    asyncio.run(scenario())


def test_faults_of_the_verifier_arrive_typed_before_and_after_the_first_token(text_folder: Path) -> None:
    async def scenario() -> None:
        for runs in (0, 1):
            for error in (Unavailable("queue full", 7.0), SequenceFault("this sequence broke")):
                async with (
                    running_house(text_folder, error=error, error_after_runs=runs) as house,
                    AsyncClient(house.address, retry=NO_RETRY) as client,
                ):
                    with pytest.raises(type(error), match=str(error)) as caught:
                        await client.generate("Hi").finish()
                    if isinstance(caught.value, Unavailable):
                        assert caught.value.retry_after_seconds == 7.0

    asyncio.run(scenario())


def test_a_verifier_that_is_away_is_unavailable_and_its_return_is_noticed(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            await client.generate("Hi").finish()
            await house.verifier_server.stop()
            with pytest.raises(Unavailable, match=f"the verifier at {house.verifier_server.address} cannot be reached"):
                await client.generate("Hi").finish()
            other = FakeVerifier(answer=house.verifier.answer, vocabulary_size=house.text.vocabulary_size, name="other")
            async with serving(verifier_on(house.verifier_server.port, other)):
                assert (await until_it_answers(client)).model == "other"

    asyncio.run(scenario())


async def until_it_answers(client: AsyncClient) -> Answer:
    """gRPC dials again after a pause of its own."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.generate("Hi").finish()
            except Unavailable:
                await asyncio.sleep(0.05)


def test_more_answers_than_the_gateway_takes_are_refused_and_the_place_is_free_again_later(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, max_concurrent=1, hang_after_runs=1) as house,
            AsyncClient(house.address) as client,
        ):
            async with client.generate("Hi") as stream:
                await anext(aiter(stream))
                with pytest.raises(Unavailable, match="1 answers are in flight; this gateway takes 1"):
                    await client.generate("Hi").finish()
            await asyncio.wait_for(house.verifier.ended.wait(), 10)
            house.verifier.hang_after_runs = None
            await client.generate("Hi").finish()

    asyncio.run(scenario())
