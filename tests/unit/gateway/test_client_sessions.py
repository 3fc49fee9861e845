"""Sessions and broken connections as the SDK has them, both twins, against a real gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saguaro.client import AsyncClient, Client
from saguaro.errors import InvalidRequest, SessionNotFound, Unavailable
from tests.unit.gateway.cut_line import cut_line
from tests.unit.gateway.house import running_house

ANSWER = "The saguaro 🌵 is größer, and it stands still for a hundred years."
SYSTEM, TELL = [{"role": "system", "content": "Be brief."}], [{"role": "user", "content": "Tell"}]


def test_a_conversation_of_two_turns_and_its_end(text_folder: Path) -> None:
    def talk(address: str) -> None:
        with Client(address) as client:
            session = client.create_session(SYSTEM)
            for num_turns in (1, 2):
                assert client.generate(TELL, session_id=session.session_id).finish().text == ANSWER
                kept = client.get_session(session.session_id)
                assert (kept.num_turns, len(kept.messages)) == (num_turns, 1 + 2 * num_turns)
            client.delete_session(session.session_id)
            with pytest.raises(SessionNotFound):
                client.get_session(session.session_id)
            with pytest.raises(InvalidRequest, match="tools"):
                client.create_session([{"role": "tool", "content": "4", "tool_call_id": "c"}])

    async def talk_async(address: str) -> None:
        async with AsyncClient(address) as client:
            session = await client.create_session(SYSTEM, model="fake")
            assert (await client.generate(TELL, session_id=session.session_id).finish()).text == ANSWER
            assert (await client.get_session(session.session_id)).num_turns == 1
            await client.delete_session(session.session_id)
            with pytest.raises(SessionNotFound):
                await client.delete_session(session.session_id)

    async def scenario() -> None:
        async with running_house(text_folder, ANSWER, context_limit=4096) as house:
            await asyncio.to_thread(talk, house.address)
            await talk_async(house.address)

    asyncio.run(scenario())


@pytest.mark.parametrize("num_bytes", [300, 500, 700])
def test_a_resumable_answer_goes_on_over_a_broken_connection(text_folder: Path, num_bytes: int) -> None:
    def read(address: str) -> Any:
        with Client(address) as client:
            return client.generate("Hi", resumable=True, timeout_seconds=30).finish()

    async def read_async(address: str) -> Any:
        async with AsyncClient(address) as client:
            return await client.generate("Hi", resumable=True, timeout_seconds=30).finish()

    async def scenario() -> None:
        async with running_house(text_folder, ANSWER, resume_seconds=30) as house:
            for asked in (lambda address: asyncio.to_thread(read, address), read_async):
                with cut_line(house.address, num_bytes) as line:
                    answer = await asked(line.address)
                assert line.was_cut
                assert (answer.text, answer.token_ids) == (ANSWER, house.verifier.answer)

    asyncio.run(scenario())


def test_another_answer_ends_with_its_connection_once_tokens_are_out(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, ANSWER) as house:
            with cut_line(house.address, 700) as line:
                async with AsyncClient(line.address) as client:
                    texts: list[str] = []
                    with pytest.raises(Unavailable):  # noqa: PT012
                        async for delta in client.generate("Hi", timeout_seconds=30):
                            texts.append(delta.text)
                assert texts
                assert ANSWER.startswith("".join(texts))

    asyncio.run(scenario())
