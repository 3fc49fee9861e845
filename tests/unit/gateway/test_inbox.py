"""Events of a generation on their way to a reader that may be behind."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.verifiers.generation import joined
from gateway.verifiers.inbox import Inbox
from saguaro.errors import DeadlineExceeded, SequenceFault
from saguaro.types import (
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
    PromptLogprobs,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
)

runs = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(
    lambda ids: TokenRun(
        tuple(ids),
        tuple(TokenProvenance(1 + token % 6) for token in ids),
        tuple(TokenLogprobs(-float(token)) for token in ids),
    )
)
others = st.sampled_from(
    [
        GenerationStarted(1),
        PromptLogprobs(()),
        GenerationFinished(FinishReason.STOP, 1, 1, 0, SpeculationReport(False)),
    ]
)


@given(st.lists(runs | others, max_size=12))
def test_joined_runs_lose_and_reorder_nothing(events: list[GenerationEvent]) -> None:
    def flat(items: list[GenerationEvent]) -> list[object]:
        return [
            part
            for item in items
            for part in (
                zip(item.token_ids, item.provenance, item.logprobs, strict=True)
                if isinstance(item, TokenRun)
                else (item,)
            )
        ]

    found = joined(events)
    assert flat(found) == flat(events)
    assert not any(isinstance(a, TokenRun) and isinstance(b, TokenRun) for a, b in pairwise(found))


def test_what_came_before_an_error_is_read_first_and_the_first_error_stays() -> None:
    async def scenario() -> None:
        inbox = Inbox()
        inbox.put(GenerationStarted(1))
        inbox.put(PromptLogprobs(()))
        inbox.fail(SequenceFault("broken"))
        inbox.fail(DeadlineExceeded("late"))
        assert await inbox.take() == [GenerationStarted(1), PromptLogprobs(())]
        for _ in range(2):
            with pytest.raises(SequenceFault, match="broken"):
                await inbox.take()

    asyncio.run(scenario())


def test_a_reader_sleeps_until_something_comes() -> None:
    async def scenario() -> None:
        inbox = Inbox()
        reading = asyncio.create_task(inbox.take())
        await asyncio.sleep(0.01)
        assert not reading.done()
        inbox.put(GenerationStarted(1))
        assert await reading == [GenerationStarted(1)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inbox.take(), 0.01)

    asyncio.run(scenario())
