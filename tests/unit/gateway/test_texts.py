"""Text that is no text, and errors that are too long for gRPC: a typed error with its words, never a traceback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from saguaro.client import AsyncClient, Client
from saguaro.config import GatewaySettings
from saguaro.errors import InvalidRequest, ModelNotFound, SaguaroError, Unavailable
from saguaro.server import GrpcServer
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc

HALF = "a\udcff"
TOOL = {"type": "function", "function": {"name": "f", "description": HALF}}
SAYS = [{"role": "user", "content": "Hi"}]
NOWHERE = "127.0.0.1:1"

CASES: dict[str, tuple[str, Callable[[Client], Any]]] = {
    "prompt": ("prompt", lambda client: client.generate(HALF)),
    "bytes as prompt": ("prompt", lambda client: client.generate(b"Hi")),  # type: ignore[arg-type]
    "content": ("messages.0.content", lambda client: client.generate([{"role": "user", "content": HALF}])),
    "bytes as content": ("messages.0.content", lambda client: client.generate([{"role": "user", "content": b"Hi"}])),
    "role": ("messages.0.role", lambda client: client.generate([{"role": HALF, "content": "Hi"}])),
    "stop": ("stop", lambda client: client.generate("Hi", stop=["x", HALF])),
    "regex": ("sampling.regex", lambda client: client.generate("Hi", regex=HALF)),
    "schema": ("sampling.json_schema", lambda client: client.generate("Hi", json_schema={"enum": [HALF]})),
    "schema as text": ("sampling.json_schema", lambda client: client.generate("Hi", json_schema=HALF)),
    "tool": ("chat.tools", lambda client: client.generate(SAYS, tools=[TOOL])),
    "model": ("model", lambda client: client.generate("Hi", model=HALF)),
    "acceptance": ("sampling.acceptance", lambda client: client.generate("Hi", acceptance=HALF)),
    "traffic class": ("traffic_class", lambda client: client.generate("Hi", traffic_class=HALF)),
    "session": ("session_id", lambda client: client.generate(SAYS, session_id=HALF)),
    "text to tokenize": ("text", lambda client: client.tokenize(HALF)),
    "model of tokenize": ("model", lambda client: client.tokenize("Hi", model=HALF)),
    "first messages": ("messages.0.content", lambda client: client.create_session([{"role": "user", "content": HALF}])),
    "session to get": ("session_id", lambda client: client.get_session(HALF)),
    "session to delete": ("session_id", lambda client: client.delete_session(HALF)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sdk_refuses_half_a_character_with_the_field_s_name(name: str) -> None:
    field, work = CASES[name]
    with Client(NOWHERE) as client, pytest.raises(InvalidRequest, match=r"lone surrogate|is of type bytes") as refused:
        work(client)
    assert refused.value.field == field
    str(refused.value).encode()  # can be printed


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_that_cannot_travel_is_refused_and_not_told(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="printable ASCII") as refused:
        kind(NOWHERE, api_key="kéy")
    assert refused.value.field == "api_key"
    assert "kéy" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["generate", b"\xff"], b""),
        (["generate", "-"], b"\xff\n"),
        (["generate", "Hi", "--stop", b"\xff"], b""),
        (["generate", "Hi", "--regex", b"\xff"], b""),
    ],
)
def test_the_command_line_refuses_bytes_that_are_no_utf_8_in_one_line(
    arguments: list[str | bytes], stdin: bytes
) -> None:
    command = [sys.executable, "-X", "utf8", "-m", "saguaro.cli", *arguments]
    ended = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    said = ended.stderr.decode()
    assert ended.returncode != 0
    assert "Traceback" not in said
    assert "UTF-8" in said


class Servicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Fails with its error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def Tokenize(self, request: Any, context: Any) -> pb.TokenizeResponse:
        raise self._error

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        yield pb.GenerateResponse(started=pb.AnswerStarted(request_id="r", seed=1, acceptance_mode=1))
        raise self._error


WORDS = {
    "ASCII": "no such word " * 5000,
    "CJK": "沙漠植物" * 5000,
    "percent": "%" * 20_000,
    "control": "\n" * 20_000,
    "cactus": "🌵" * 20_000,
    "half a character": "\udcff" * 20_000,
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    "error",
    [lambda text: InvalidRequest("prompt", text), lambda text: InvalidRequest(text, text), ModelNotFound, Unavailable],
)
def test_an_error_of_any_length_arrives_as_what_it_is_with_the_beginning_of_its_words(
    words: str, error: Callable[[str], SaguaroError]
) -> None:
    raised = error(WORDS[words])

    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(Servicer(raised), server)
        return ["saguaro.v1.GatewayService"]

    async def scenario() -> None:
        server = GrpcServer(GatewaySettings(port=0), register, role="gateway")
        await server.start()
        await server.admit()
        async with AsyncClient(server.address) as client:
            for call in (
                client.tokenize("Hi", timeout_seconds=0.5),
                client.generate("Hi", timeout_seconds=0.5).finish(),
            ):
                with pytest.raises(type(raised)) as caught:
                    await call
                said = str(caught.value)
                assert said[:100] == WORDS[words][:100].replace("\udcff", "?")
                assert said.endswith(" more characters)")
        await server.stop()

    asyncio.run(scenario())
