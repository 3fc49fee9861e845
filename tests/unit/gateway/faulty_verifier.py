"""A verifier that goes wrong at some requests, by their ids, in every way that one can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from saguaro.errors import SequenceFault
from saguaro.types import GenerationEvent, GenerationRequest, TokenProvenance, TokenRun
from saguaro.v1 import verifier_pb2 as pb
from tests.unit.gateway.house import FakeVerifier

_MARK = 0x7FFFFFF1  # a token that no fake emits


class FaultyVerifier(FakeVerifier):
    """`is_broken`: every forward of it fails. Requests by what their ids begin with: `poison` fails, `odd` brings a
    number that no one knows, `garbled` a message that cannot be read.
    """

    def __init__(self, *, is_broken: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.is_broken = is_broken

    async def _events(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        index = 0
        async for event in super()._events(request):
            if index == 1 and (self.is_broken or request.request_id.startswith("poison")):
                raise SequenceFault("the forward failed")
            if index == 1 and request.request_id.startswith(("odd", "garbled")):
                event = TokenRun((_MARK + request.request_id.startswith("garbled"),), (TokenProvenance.PLAIN,))
            yield event
            index += 1

    def register(self, server: Any) -> None:
        """In place of the service's own: the relay with a serializer that spoils what is marked."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.Relay, request_deserializer=pb.RelayRequest.FromString, response_serializer=_spoiled
        )
        server.add_registered_method_handlers("saguaro.v1.VerifierService", {"Relay": handler})


def _spoiled(response: pb.RelayResponse) -> bytes:
    for item in response.events:
        tokens = item.event.run.token_ids
        if _MARK in tokens:
            item.event.run.provenance[0] = 99  # type: ignore[call-overload]
        if _MARK + 1 in tokens:
            return b"\xff\xff\xff"
    return response.SerializeToString()
