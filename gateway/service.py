"""GatewayService over `Answers`: proto in, proto out, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from gateway.answers import Answers
from saguaro.server import current_request_id
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_event_to_proto, answer_request_from_proto, served_model_to_proto


class GatewayServicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Errors leave as exceptions of the tree; the doorkeeper turns them into status."""

    def __init__(self, request_timeout_seconds: float) -> None:
        self._request_timeout_seconds = request_timeout_seconds
        self._answers: Answers | None = None

    def open(self, answers: Answers) -> None:
        """Give the servicer what it answers with; the doorkeeper holds calls back until then."""
        self._answers = answers

    @property
    def answers(self) -> Answers:
        """What the servicer answers with."""
        assert self._answers is not None, "calls are admitted after open()"
        return self._answers

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        """Generates after a prompt and streams the answer."""
        remaining = context.time_remaining()
        timeout = self._request_timeout_seconds if remaining is None else min(remaining, self._request_timeout_seconds)
        events = self.answers.generate(answer_request_from_proto(request), current_request_id(), timeout)
        async with contextlib.aclosing(events):
            async for event in events:
                yield answer_event_to_proto(event)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Any) -> pb.TokenizeResponse:
        """Text to token ids."""
        return pb.TokenizeResponse(token_ids=await self.answers.tokenize(request.model, request.text))

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Any) -> pb.DetokenizeResponse:
        """Token ids to text."""
        return pb.DetokenizeResponse(text=await self.answers.detokenize(request.model, tuple(request.token_ids)))

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        """What can be asked for."""
        return pb.ListModelsResponse(models=map(served_model_to_proto, await self.answers.served_models()))
