"""What one request's answer may grow to at the HTTP door."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator

import pytest

from gateway.http import replies
from gateway.http.replies import Reply
from gateway.http.shapes import ChatShape
from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerStarted
from saguaro.errors import InvalidRequest
from saguaro.types import AcceptanceMode, FinishReason, SpeculationReport, TokenLogprobs, TokenProvenance

TOP = TokenLogprobs(-1.0, tuple((token, -1.0) for token in range(20)))


async def events(num_tokens: int) -> AsyncGenerator[AnswerEvent]:
    yield AnswerStarted("r", "m", 1, (1,), AcceptanceMode.COUPLED)
    for _ in range(num_tokens):
        yield AnswerDelta("word ", (5,), (TokenProvenance.BONUS,), (TOP,))
    yield AnswerFinished(FinishReason.LENGTH, "", 1, num_tokens, 0, SpeculationReport(True))


class Words:
    """A vocabulary of one word."""

    special_ids: frozenset[int] = frozenset()

    def token_bytes(self, token_id: int) -> bytes:
        return b"word "


def reply() -> Reply:
    return Reply(ChatShape(Words()), "r", 1, wants_usage=True)


def test_a_whole_answer_has_a_bounded_number_of_log_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "MAX_LOGPROBS", 21 * 100)
    assert asyncio.run(reply().whole(events(100)))["usage"]["completion_tokens"] == 100
    with pytest.raises(InvalidRequest, match="over 2100 log-probabilities") as refused:
        asyncio.run(reply().whole(events(101)))
    assert refused.value.field == "logprobs"


def test_a_stream_keeps_nothing_of_what_it_has_sent() -> None:
    async def peak_bytes(num_tokens: int) -> int:
        tracemalloc.start()
        try:
            async for chunk in reply().chunks(events(num_tokens)):
                last = chunk
            assert last["usage"]["completion_tokens"] == num_tokens
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = asyncio.run(peak_bytes(500)), asyncio.run(peak_bytes(5000))
    assert many < few + 5000 * 100, (few, many)
