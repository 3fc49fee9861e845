"""A verifier on a real socket that has no model: it streams runs of tokens at the pace that each request names.

`python -m bench.paced_verifier PORT VOCABULARY`. The pace rides in the prompt: (interval in PACE_UNIT_US, tokens a run)
as its first two tokens. Each run's instant of sending comes back in the reports of rounds, by the clock of the machine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from saguaro.config import VerifierSettings
from saguaro.emulation.tokenizer import FIRST_WORD_ID
from saguaro.server import GenerationHandle, Relay, serve
from saguaro.types import (
    EventSink,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LookupResult,
    ModelIdentity,
    RoundReport,
    SpeculationReport,
    TokenProvenance,
    TokenRun,
    VerifierInfo,
)
from saguaro.v1 import verifier_pb2, verifier_pb2_grpc
from saguaro.wire.verifier import event_to_proto, generation_request_from_proto, verifier_info_to_proto

CONTEXT_LIMIT = 1 << 20
PACE_UNIT_US = 100


class PacedVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Everything but the model."""

    def __init__(self, vocabulary: int) -> None:
        self._model = ModelIdentity("paced", "0" * 64, vocabulary, CONTEXT_LIMIT, "float32")

    async def GetVerifierInfo(self, request: Any, context: Any) -> verifier_pb2.GetVerifierInfoResponse:
        """Who it pretends to be."""
        return verifier_info_to_proto(VerifierInfo(1, self._model, (), False, "there is no model", "", 0, 0))

    async def GetLoad(self, request: Any, context: Any) -> verifier_pb2.GetLoadResponse:
        return verifier_pb2.GetLoadResponse()

    async def SetPolicy(self, request: Any, context: Any) -> verifier_pb2.SetPolicyResponse:
        """There is nothing to bound."""
        return verifier_pb2.SetPolicyResponse()

    async def Relay(self, commands: Any, context: Any) -> AsyncIterator[verifier_pb2.RelayResponse]:
        """As the gateway asks."""
        async for response in Relay(_begin).responses(commands):
            yield response

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[verifier_pb2.VerifierServiceGenerateResponse]:
        """The first run at once, the others on a grid of the interval."""
        async for event in _runs(generation_request_from_proto(request)):
            yield event_to_proto(event)


async def _begin(request: GenerationRequest, sink: EventSink) -> GenerationHandle:
    async def emit() -> None:
        async for event in _runs(request):
            sink(event)

    emitting = asyncio.create_task(emit())

    def end() -> None:
        emitting.cancel()

    return GenerationHandle(stop=end, abort=end)


async def _runs(request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
    pace, length = request.prompt[:2]
    yield GenerationStarted(request.sampling.seed)
    run = TokenRun(
        tuple(range(FIRST_WORD_ID, FIRST_WORD_ID + length)),
        (TokenProvenance.CACHED_DRAFT,) * (length - 1) + (TokenProvenance.BONUS,),
    )
    began, sent = time.monotonic(), []
    for index in range((request.max_tokens or 1) // length):
        await asyncio.sleep(max(began + index * pace * PACE_UNIT_US / 1e6 - time.monotonic(), 0.0))
        sent.append(time.monotonic_ns())
        yield run
    rounds = tuple(
        RoundReport(index, length - 1, length - 1, LookupResult.HIT, 0, 0, 0, 0, started_ns=sent_ns)
        for index, sent_ns in enumerate(sent)
    )
    report = SpeculationReport(False, "there is no model", rounds=rounds if request.include_rounds else ())
    yield GenerationFinished(FinishReason.LENGTH, len(request.prompt), len(sent) * length, 0, report)


async def main(port: int, vocabulary: int) -> None:
    """Serve until a signal."""

    def register(server: Any) -> list[str]:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(PacedVerifier(vocabulary), server)
        return ["saguaro.v1.VerifierService"]

    await serve(VerifierSettings(port=port, drain_seconds=0), register, role="verifier")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
