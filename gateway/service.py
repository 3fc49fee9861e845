"""GatewayService over `Answers`: proto in, proto out, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from gateway.answers import Answers
from gateway.policy import PolicyDesk
from saguaro.server import current_request_id
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_event_to_proto, answer_request_from_proto, served_model_to_proto
from saguaro.wire.policy import policy_change_response, policy_changes_from_proto, policy_response


class GatewayServicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Errors leave as exceptions of the tree; the doorkeeper turns them into status."""

    def __init__(self, request_timeout_seconds: float) -> None:
        self._request_timeout_seconds = request_timeout_seconds
        self._desk: PolicyDesk | None = None
        self._answers: Answers | None = None

    def open(self, answers: Answers, desk: PolicyDesk) -> None:
        """Give the servicer what it answers with; the doorkeeper holds calls back until then."""
        self._answers, self._desk = answers, desk

    @property
    def answers(self) -> Answers:
        """What the servicer answers with."""
        assert self._answers is not None, "calls are admitted after open()"
        return self._answers

    @property
    def desk(self) -> PolicyDesk:
        """Where the policy is read and changed."""
        assert self._desk is not None, "calls are admitted after open()"
        return self._desk

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
        return pb.ListModelsResponse(models=[served_model_to_proto(await self.answers.served_model())])

    async def GetPolicy(
        self, request: pb.GatewayServiceGetPolicyRequest, context: Any
    ) -> pb.GatewayServiceGetPolicyResponse:
        """How far requests of each traffic class are speculated."""
        return policy_response(self.desk.report)

    async def SetPolicy(
        self, request: pb.GatewayServiceSetPolicyRequest, context: Any
    ) -> pb.GatewayServiceSetPolicyResponse:
        """Changes that at every verifier."""
        return policy_change_response(await self.desk.change(policy_changes_from_proto(request.policy)))
