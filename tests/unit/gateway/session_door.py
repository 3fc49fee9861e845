"""Sessions of a gateway as tests use them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from saguaro.answers import AnswerRequest, ChatMessage, ChatPrompt, Prompt
from saguaro.client import Answer
from saguaro.client.answer import AnswerBuilder
from saguaro.sessions import SessionInfo
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_event_from_proto, answer_request_to_proto
from saguaro.wire.sessions import session_from_proto
from saguaro.wire.status import error_of
from tests.unit.gateway.house import House, running_house

ANSWER = "The saguaro 🌵 is größer."


class Door:
    """A gateway's sessions over gRPC, with what it raises typed."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub

    async def create(self, *messages: ChatMessage, model: str = "") -> SessionInfo:
        said = [pb.ChatMessage(role=message.role, content=message.content) for message in messages]
        response = await self._typed(self.stub.CreateSession(pb.CreateSessionRequest(model=model, messages=said)))
        return session_from_proto(response.session)

    async def get(self, session_id: str) -> SessionInfo:
        request = pb.GetSessionRequest(session_id=session_id)
        return session_from_proto((await self._typed(self.stub.GetSession(request))).session)

    async def delete(self, session_id: str) -> None:
        await self._typed(self.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session_id)))

    def call(self, session_id: str, prompt: Prompt | str, **options: Any) -> Any:
        """The running turn."""
        asked = ChatPrompt((ChatMessage("user", prompt),)) if isinstance(prompt, str) else prompt
        request = AnswerRequest(asked, session_id=session_id, seed=1, **options)
        return self.stub.Generate(answer_request_to_proto(request))

    async def turn(self, session_id: str, prompt: Prompt | str, **options: Any) -> Answer:
        builder = AnswerBuilder(time.monotonic())
        try:
            async for message in self.call(session_id, prompt, **options):
                event = answer_event_from_proto(message)
                assert event is not None
                builder.accept(event, time.monotonic())
        except grpc.aio.AioRpcError as error:
            raise error_of(error, "the gateway") from None
        assert builder.results is not None
        return builder.results[0]

    async def _typed(self, call: Any) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise error_of(error, "the gateway") from None


@contextlib.asynccontextmanager
async def door_at(address: str) -> AsyncIterator[Door]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Door(gateway_pb2_grpc.GatewayServiceStub(channel))


@contextlib.asynccontextmanager
async def open_door(folder: Path, **options: Any) -> AsyncIterator[tuple[House, Door]]:
    async with (
        running_house(folder, **({"answer": ANSWER, "context_limit": 4096} | options)) as house,
        door_at(house.address) as door,
    ):
        yield house, door
