"""GatewayService over `Answers`: proto in, proto out, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from gateway.answers import Answers
from gateway.guard import current_principal
from gateway.policy import PolicyDesk
from gateway.sessions import Sessions
from gateway.streams import Numbered, Streams, numbered
from saguaro.answers import AnswerEvent
from saguaro.server import REQUEST_ID_KEY, current_request_id
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.common import items_of
from saguaro.wire.gateway import answer_event_to_proto, answer_request_from_proto, served_model_to_proto
from saguaro.wire.policy import policy_change_response, policy_changes_from_proto, policy_response
from saguaro.wire.sessions import messages_from_proto, session_to_proto


class GatewayServicer(gateway_pb2_grpc.GatewayServiceServicer):
    """Errors leave as exceptions of the tree; the doorkeeper turns them into status."""

    _sessions: Sessions
    _streams: Streams[pb.GenerateResponse]

    def __init__(self, request_timeout_seconds: float) -> None:
        self._request_timeout_seconds = request_timeout_seconds
        self._desk: PolicyDesk | None = None
        self._answers: Answers | None = None

    def open(
        self, answers: Answers, sessions: Sessions, streams: Streams[pb.GenerateResponse], desk: PolicyDesk
    ) -> None:
        """Give the servicer what it answers with; the doorkeeper holds calls back until then."""
        self._answers, self._sessions, self._streams, self._desk = answers, sessions, streams, desk

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
        asked, request_id = answer_request_from_proto(request), current_request_id()
        events = _to_proto(self._sessions.generate(asked, request_id, timeout))
        if asked.resumable:
            stream = self._streams.keep(request_id, events)
            # Who is cut off before the first event needs the id, too.
            await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
        else:
            stream = numbered(events)
        async with contextlib.aclosing(_responses(stream)) as responses:
            async for response in responses:
                yield response

    async def ResumeStream(
        self, request: pb.ResumeStreamRequest, context: Any
    ) -> AsyncIterator[pb.ResumeStreamResponse]:
        """Goes on with an answer whose client was cut off."""
        stream = self._streams.resume(request.request_id, request.after_sequence_number)
        async with contextlib.aclosing(_responses(stream)) as responses:
            async for response in responses:
                yield pb.ResumeStreamResponse(response=response)

    async def CancelStream(self, request: pb.CancelStreamRequest, context: Any) -> pb.CancelStreamResponse:
        """Ends a resumable answer."""
        await self._streams.cancel(request.request_id)
        return pb.CancelStreamResponse()

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Any) -> pb.CreateSessionResponse:
        """Begins a conversation."""
        session = await self._sessions.create(request.model, messages_from_proto(request.messages))
        return pb.CreateSessionResponse(session=session_to_proto(session))

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> pb.GetSessionResponse:
        """What is kept of a conversation."""
        return pb.GetSessionResponse(session=session_to_proto(await self._sessions.get(request.session_id)))

    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Any) -> pb.DeleteSessionResponse:
        """Forgets a conversation."""
        await self._sessions.delete(request.session_id)
        return pb.DeleteSessionResponse()

    async def Tokenize(self, request: pb.TokenizeRequest, context: Any) -> pb.TokenizeResponse:
        """Text to token ids."""
        return pb.TokenizeResponse(token_ids=await self.answers.tokenize(request.model, request.text))

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Any) -> pb.DetokenizeResponse:
        """Token ids to text."""
        return pb.DetokenizeResponse(
            text=await self.answers.detokenize(request.model, items_of("token_ids", request.token_ids))
        )

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        """What can be asked for."""
        return pb.ListModelsResponse(models=map(served_model_to_proto, await self.answers.served_models()))

    async def GetPolicy(
        self, request: pb.GatewayServiceGetPolicyRequest, context: Any
    ) -> pb.GatewayServiceGetPolicyResponse:
        """How far requests of each traffic class are speculated."""
        return policy_response(self.desk.report)

    async def SetPolicy(
        self, request: pb.GatewayServiceSetPolicyRequest, context: Any
    ) -> pb.GatewayServiceSetPolicyResponse:
        """Changes that at every verifier."""
        current_principal().check_policy()
        return policy_change_response(await self.desk.change(policy_changes_from_proto(request.policy)))


def event_bytes(event: pb.GenerateResponse) -> int:
    """What an event takes on the wire; in memory it is of the same order."""
    return int(event.ByteSize())


async def _to_proto(events: AsyncGenerator[AnswerEvent]) -> AsyncGenerator[pb.GenerateResponse]:
    async with contextlib.aclosing(events):
        async for event in events:
            yield answer_event_to_proto(event)


async def _responses(stream: AsyncGenerator[Numbered[pb.GenerateResponse]]) -> AsyncGenerator[pb.GenerateResponse]:
    async with contextlib.aclosing(stream):
        async for event in stream:
            event.item.sequence_number = event.sequence_number
            yield event.item
