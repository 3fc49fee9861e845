"""Sessions and broken connections as the SDK has them, both twins, against a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from saguaro.client import AsyncClient, Client
from saguaro.errors import InvalidRequest, SessionNotFound, Unavailable
from tests.unit.gateway.house import House, running_house

ANSWER = "The saguaro 🌵 is größer, and it stands still for a hundred years."
SYSTEM, TELL = [{"role": "system", "content": "Be brief."}], [{"role": "user", "content": "Tell"}]
_CHUNK = 64


class Line:
    """A wire to the gateway that is cut once, after `num_bytes` from the gateway."""

    def __init__(self, house: House, num_bytes: int) -> None:
        self._host, _, port = house.address.rpartition(":")
        self._port, self._left, self.was_cut = int(port), num_bytes, False
        self._serving: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        there = asyncio.create_task(self._pass(reader, upstream_writer, counts=False))
        try:
            await self._pass(upstream_reader, writer, counts=True)
        finally:
            there.cancel()
            await asyncio.gather(there, return_exceptions=True)
            for end in (writer, upstream_writer):
                end.transport.abort()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counts: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_CHUNK if counts else 65536):
                if counts and not self.was_cut:
                    self._left -= len(data)
                    if self._left < 0:
                        self.was_cut = True
                        return
                sink.write(data)
                await sink.drain()


@contextlib.asynccontextmanager
async def cut_line(house: House, num_bytes: int) -> AsyncIterator[tuple[Line, str]]:
    line = Line(house, num_bytes)
    async with await asyncio.start_server(line.accept, "127.0.0.1", 0) as server:
        try:
            yield line, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await line.close()


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


@pytest.mark.slow  # the cut wire leaves sockets to the collector, which must not warn in other tests
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
                async with cut_line(house, num_bytes) as (line, address):
                    answer = await asked(address)
                assert line.was_cut
                assert (answer.text, answer.token_ids) == (ANSWER, house.verifier.answer)

    asyncio.run(scenario())


@pytest.mark.slow
def test_another_answer_ends_with_its_connection_once_tokens_are_out(text_folder: Path) -> None:
    async def scenario() -> None:
        async with (
            running_house(text_folder, ANSWER) as house,
            cut_line(house, 700) as (_, address),
            AsyncClient(address) as client,
        ):
            texts: list[str] = []
            with pytest.raises(Unavailable):  # noqa: PT012
                async for delta in client.generate("Hi", timeout_seconds=30):
                    texts.append(delta.text)
            assert texts
            assert ANSWER.startswith("".join(texts))

    asyncio.run(scenario())
