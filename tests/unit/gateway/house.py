"""A fake verifier and a real gateway in front of it, each on a real socket, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.answers import Answers
from gateway.http.admin import admin_app
from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from gateway.metrics import GatewayMetrics
from gateway.policy import PolicyDesk
from gateway.policy_metrics import PolicyCollector
from gateway.service import GatewayServicer
from gateway.text import TextModel
from gateway.verifier_client import VerifierClient
from saguaro.config import GatewaySettings, VerifierSettings
from saguaro.server import GrpcServer
from saguaro.types import (
    ClassPolicy,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LookupResult,
    ModelIdentity,
    PromptLogprobs,
    RoundReport,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
    TrafficClass,
    TrafficPolicy,
    VerifierInfo,
)
from saguaro.v1 import gateway_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from saguaro.wire.policy import policy_changes_from_proto
from saguaro.wire.verifier import event_to_proto, generation_request_from_proto, verifier_info_to_proto

CONTEXT_LIMIT = 64
RUN_LENGTH = 3
ROUNDS = tuple(RoundReport(r, 2, 2, LookupResult.HIT, 10, 20, 30, 40) for r in (1, 2))


@dataclass
class FakeVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Emits `answer`, RUN_LENGTH tokens a run, up to max_tokens; can hang after a run, or raise instead."""

    answer: tuple[int, ...] = ()
    vocabulary_size: int = 0
    name: str = "fake"
    hang_after_runs: int | None = None
    error: Exception | None = None
    error_after_runs: int = 0
    finishes: bool = True
    requests: list[GenerationRequest] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    aborted_ids: list[str] = field(default_factory=list)
    num_runs: int = 0
    policies: list[dict[TrafficClass, ClassPolicy]] = field(default_factory=list)  # as they were pushed
    runs_before: list[int] = field(default_factory=list)  # sent to anyone when each request came

    async def GetVerifierInfo(self, request: Any, context: Any) -> verifier_pb2.GetVerifierInfoResponse:
        model = ModelIdentity(self.name, "f" * 64, self.vocabulary_size, CONTEXT_LIMIT, "float32")
        return verifier_info_to_proto(VerifierInfo(1, model, (1,), False, "no speculator configured", "", 4, 8))

    async def Abort(self, request: Any, context: Any) -> verifier_pb2.AbortResponse:
        self.aborted_ids.append(request.request_id)
        self.aborted.set()
        return verifier_pb2.AbortResponse()

    async def SetPolicy(self, request: Any, context: Any) -> verifier_pb2.SetPolicyResponse:
        self.policies.append(policy_changes_from_proto(request.classes))
        return verifier_pb2.SetPolicyResponse()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        generation = generation_request_from_proto(request)
        self.requests.append(generation)
        self.runs_before.append(self.num_runs)
        self.metadata = dict(context.invocation_metadata())
        try:
            async for event in self._events(generation):
                yield event_to_proto(event)
        finally:
            self.ended.set()

    async def _events(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        yield GenerationStarted(request.sampling.seed)
        if request.prompt_logprobs:
            yield PromptLogprobs(tuple(TokenLogprobs(-float(token)) for token in request.prompt[1:]))
        tokens = self.answer[: request.max_tokens]
        for index, start in enumerate(range(0, len(tokens), RUN_LENGTH)):
            if self.error is not None and index == self.error_after_runs:
                raise self.error
            if index == self.hang_after_runs:
                await self.aborted.wait()
                yield GenerationFinished(FinishReason.ABORTED, len(request.prompt), start, 0, SpeculationReport(True))
                return
            run = tokens[start : start + RUN_LENGTH]
            self.num_runs += 1
            logprobs = tuple(TokenLogprobs(-float(token)) for token in run) if request.logprobs else ()
            yield TokenRun(run, (TokenProvenance.CACHED_DRAFT,) * (len(run) - 1) + (TokenProvenance.BONUS,), logprobs)
        if self.finishes:
            reason = FinishReason.STOP if len(tokens) == len(self.answer) else FinishReason.LENGTH
            rounds = ROUNDS if request.include_rounds else ()
            report = SpeculationReport(not request.disable_speculation, "", 2, 4, 4, 2, 0, 0, rounds)
            yield GenerationFinished(reason, len(request.prompt), len(tokens), 0, report)


@dataclass(frozen=True)
class House:
    """Where things are."""

    address: str
    text: TextModel
    verifier: FakeVerifier
    verifier_server: GrpcServer
    answers: Answers
    http_url: str
    http: HttpServer
    desk: PolicyDesk
    admin_url: str


@contextlib.asynccontextmanager
async def running_house(
    folder: Path,
    answer: str = "The saguaro 🌵 is größer.",
    max_concurrent: int = 8,
    max_body_bytes: int = 1 << 20,
    **fake: Any,
) -> AsyncIterator[House]:
    """A gateway with the text side in `folder`, whose verifier says `answer` and an end token to everything."""
    text = TextModel.from_folder(folder)
    vocabulary = {"vocabulary_size": text.vocabulary_size}
    verifier = FakeVerifier(answer=(*text.encode(answer), 1), **(vocabulary | fake))
    settings = GatewaySettings(port=0, http_port=0, admin_port=0)
    metrics = GatewayMetrics()
    servicer = GatewayServicer(request_timeout_seconds=30)
    door = HttpDoor(request_timeout_seconds=30, max_body_bytes=max_body_bytes, metrics=metrics.registry)
    http = HttpServer(settings, door.app)

    def register_gateway(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        return ["saguaro.v1.GatewayService"]

    async with (
        serving(verifier_on(0, verifier)) as verifier_server,
        serving(GrpcServer(settings, register_gateway, role="gateway")) as server,
    ):
        client = VerifierClient(verifier_server.address, max_message_bytes=1 << 20, keepalive_seconds=20)
        desk = PolicyDesk(TrafficPolicy(), client)
        metrics.registry.register(PolicyCollector(desk))
        admin = HttpServer(settings, admin_app(metrics.registry, desk, door.ready), is_admin=True)
        answers = Answers(text, client, metrics, max_concurrent=max_concurrent)
        servicer.open(answers, desk)
        door.open(answers)
        await http.start()
        await admin.start()
        urls = f"http://127.0.0.1:{http.port}", f"http://127.0.0.1:{admin.port}"
        try:
            yield House(server.address, text, verifier, verifier_server, answers, urls[0], http, desk, urls[1])
        finally:
            await http.stop()
            await admin.stop()
            await client.close()


def verifier_on(port: int, fake: FakeVerifier) -> GrpcServer:
    """A server, not started, of the fake."""

    def register(server: Any) -> list[str]:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(fake, server)
        return ["saguaro.v1.VerifierService"]

    return GrpcServer(VerifierSettings(port=port), register, role="verifier")


@contextlib.asynccontextmanager
async def serving(server: GrpcServer) -> AsyncIterator[GrpcServer]:
    await server.start()
    await server.admit()
    try:
        yield server
    finally:
        await server.stop()
