"""A prompt of some megabytes holds up nobody else, and one that cannot fit is not tokenized at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from gateway.text import TextModel
from saguaro.client import AsyncClient, ChatMessage
from saguaro.errors import InvalidRequest
from tests.unit.gateway.house import running_house

MAX_GAP_SECONDS = 0.1
MANY = 300.0  # seconds; nothing here waits for it
LETTERS = {"letters": "a", "CJK": "漢", "emoji": "😀", "spaces": " ", "newlines": "\n"}


@dataclass
class Gaps:
    """The most processor time of this process, which the gateway is in, between two turns of a bystander.

    Processor time, since other work on the machine must not count, nor that of the gateway's workers.
    """

    longest: float = 0.0
    num_turns: int = 0


@contextlib.asynccontextmanager
async def bystander(url: str) -> AsyncIterator[Gaps]:
    """Asks for /livez over and over."""
    gaps, stop = Gaps(), asyncio.Event()

    async def ask() -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=MANY) as client:
            last = time.process_time()
            while not stop.is_set():
                assert (await client.get("/livez")).status_code == 200
                now = time.process_time()
                gaps.longest, gaps.num_turns, last = max(gaps.longest, now - last), gaps.num_turns + 1, now
                await asyncio.sleep(0.002)

    asking = asyncio.create_task(ask())
    try:
        yield gaps
    finally:
        stop.set()
        await asking


def context_for(folder: Path, num_bytes: int) -> int:
    """Tokens of a context that `num_bytes` of text might fit into."""
    text = TextModel.from_folder(folder)
    return num_bytes // max(len(text.token_bytes(token_id)) for token_id in range(text.vocabulary_size))


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
@pytest.mark.parametrize("kind", LETTERS)
def test_long_prompts_of_one_letter_hold_up_nobody(text_folder: Path, kind: str, chat: bool) -> None:
    letter = LETTERS[kind]

    def body(num_bytes: int) -> bytes:
        text = letter * (num_bytes // len(letter.encode()))
        prompt = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        return json.dumps(prompt | {"model": "fake"}, ensure_ascii=False).encode()

    async def scenario() -> None:
        bodies = [body(1_000_000), body(5_000_000)]
        # Long enough for the bytes, too short for the tokens: all is tokenized, and then refused.
        context = context_for(text_folder, 6_000_000)
        async with (
            running_house(
                text_folder, context_limit=context, max_body_bytes=1 << 24, request_timeout_seconds=MANY
            ) as house,
            httpx2.AsyncClient(base_url=house.http_url, timeout=MANY) as client,
            bystander(house.http_url) as gaps,
        ):
            path = "/v1/chat/completions" if chat else "/v1/completions"
            for content in bodies:
                answer = await client.post(path, content=content, headers={"content-type": "application/json"})
                assert "tokens; the context limit is" in answer.json()["error"]["message"]
        assert gaps.num_turns > 0
        assert gaps.longest < MAX_GAP_SECONDS

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["text", "chat", "tokenize", "session"])
def test_a_text_that_cannot_fit_is_refused_by_its_bytes(text_folder: Path, kind: str) -> None:
    text = "a" * 100_000

    async def ask(client: AsyncClient) -> None:
        match kind:
            case "text":
                await client.generate(text).finish()
            case "chat":
                await client.generate([ChatMessage("user", text)]).finish()
            case "tokenize":
                await client.tokenize(text)
            case _:
                await client.create_session([ChatMessage("user", text)])

    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            with pytest.raises(InvalidRequest, match=r"bytes.*context limit is 64 tokens.*at most \d+ bytes are taken"):
                await ask(client)

    asyncio.run(scenario())


def test_more_ids_than_the_context_holds_are_not_detokenized(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            with pytest.raises(InvalidRequest, match="there are 65 token ids; at most 64 are taken"):
                await client.detokenize([5] * 65)

    asyncio.run(scenario())


def test_short_prompts_do_not_wait_behind_long_ones(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, context_limit=1_000_000, num_workers=2) as house,
            AsyncClient(house.address) as client,
        ):
            long = [asyncio.create_task(house.answers.tokenize("", "a" * 5_000_000)) for _ in range(3)]
            await asyncio.sleep(0)  # they are first
            assert tuple(await client.tokenize("cactus")) == house.text.encode("cactus")
            assert not any(task.done() for task in long)
            for task in long:
                task.cancel()
            await asyncio.gather(*long, return_exceptions=True)

    asyncio.run(scenario())
