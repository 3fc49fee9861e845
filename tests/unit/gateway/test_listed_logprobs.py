"""Which tokens log-probabilities list, how they are written, and where their text begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.choice import Choice
from gateway.http.replies import Reply
from gateway.http.shapes import ChatShape, CompletionShape
from gateway.text import TextModel
from saguaro.answers import AnswerEvent, AnswerRequest, AnswerStarted, TextPrompt
from saguaro.types import (
    FinishReason,
    GenerationFinished,
    SpeculationReport,
    TokenIds,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
)

END_ID = 1
SPLIT = "Ah 🦎 ಠ desert"  # the lizard is four tokens, ಠ three


async def events_of(
    text: TextModel, runs: Sequence[TokenIds], stop: tuple[str, ...], top: TokenIds = ()
) -> AsyncGenerator[AnswerEvent]:
    """What the gateway makes of these runs, as its doors get it."""
    choice = Choice(text, AnswerRequest(TextPrompt(""), logprobs=True, stop=stop), 0)
    yield AnswerStarted("r", "m", 1, (5,))
    others = tuple((token_id, -float(rank)) for rank, token_id in enumerate(top))
    for run in runs:
        yield choice.take(TokenRun(run, (TokenProvenance.PLAIN,) * len(run), (TokenLogprobs(-1.0, others),) * len(run)))
        if choice.is_stopped:
            break
    yield choice.finish(GenerationFinished(FinishReason.STOP, 1, 9, 0, SpeculationReport(False)))


async def both(text: TextModel, shape: type, *of: Any) -> tuple[str, dict[str, list[Any]], dict[str, list[Any]]]:
    """Text and logprobs of the whole document, and the logprobs of the chunks together."""
    whole = (await Reply(shape(text), "r", 1, wants_usage=False).whole(events_of(text, *of)))["choices"][0]
    streamed: dict[str, list[Any]] = {}
    async for chunk in Reply(shape(text), "r", 1, wants_usage=False).chunks(events_of(text, *of)):
        for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
            streamed.setdefault(name, []).extend(values or [])
    said = whole["text"] if shape is CompletionShape else whole["message"]["content"]
    return said, whole["logprobs"], streamed


def cut(ids: TokenIds, length: int) -> list[TokenIds]:
    return [ids[start : start + length] for start in range(0, len(ids), length)]


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@pytest.mark.parametrize("stop", [(), ("desert",), (" ಠ des",), ("🦎",)])
def test_offsets_are_inside_of_the_text_and_tokens_of_a_stop_string_are_not_listed(
    text_folder: Path, stop: tuple[str, ...], length: int
) -> None:
    text = TextModel.from_folder(text_folder)
    ids = (*text.encode(SPLIT), END_ID)
    said, whole, streamed = asyncio.run(both(text, CompletionShape, cut(ids, length), stop))
    assert said == SPLIT.partition(stop[0])[0] if stop else said == SPLIT
    assert whole == streamed
    assert len(whole["tokens"]) == len(whole["text_offset"]) == len(whole["token_logprobs"])
    assert not stop or all(offset < len(said) for offset in whole["text_offset"])
    prefix = b""
    for token_id, offset in zip(ids, whole["text_offset"], strict=False):
        if token_id != END_ID:
            assert len(prefix.decode(errors="ignore")) == offset
            prefix += text.token_bytes(token_id)
    assert prefix.startswith(said.encode())
    if not stop:
        assert (whole["tokens"][-1], whole["text_offset"][-1]) == ("<|im_end|>", len(said))


@pytest.mark.parametrize("length", [1, 3])
def test_a_chat_lists_the_tokens_of_its_text_with_their_bytes(text_folder: Path, length: int) -> None:
    text = TextModel.from_folder(text_folder)
    said, whole, streamed = asyncio.run(both(text, ChatShape, cut(text.encode(SPLIT), length), (" desert",)))
    assert said == "Ah 🦎 ಠ"
    assert whole == {"content": streamed["content"], "refusal": None}
    assert b"".join(bytes(token["bytes"]) for token in whole["content"]) == said.encode()
    assert any(token["token"].startswith("bytes:\\x") for token in whole["content"])


def test_candidates_that_are_parts_of_characters_keep_apart(text_folder: Path) -> None:
    text = TextModel.from_folder(text_folder)
    of_bytes = {text.token_bytes(token_id): token_id for token_id in range(text.vocabulary_size)}
    top = tuple(of_bytes[bytes([byte])] for byte in (0xE2, 0x80, 0xFF, 0x41))
    _, whole, _ = asyncio.run(both(text, CompletionShape, [text.encode("Ah")], (), top))
    assert whole["top_logprobs"][0] == {"bytes:\\xe2": 0.0, "bytes:\\x80": -1.0, "bytes:\\xff": -2.0, "A": -3.0}
