"""A fake verifier and a real gateway in front of it, each on a real socket, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.answers import Answers
from gateway.guard import Guard
from gateway.http.admin import admin_app
from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from gateway.metrics import GatewayMetrics
from gateway.policy import PolicyDesk
from gateway.policy_metrics import PolicyCollector
from gateway.requests import Limits
from gateway.service import GatewayServicer, event_bytes
from gateway.sessions import Sessions, StoreLimits, open_store
from gateway.streams import StreamBounds, Streams
from gateway.text import TextModel
from gateway.text_workers import TextWorkers
from gateway.verifiers import VerifierPool
from saguaro.config import GatewaySettings, VerifierSettings
from saguaro.errors import Unavailable
from saguaro.server import GenerationHandle, GrpcServer, Relay
from saguaro.types import (
    AcceptanceMode,
    ClassPolicy,
    EventSink,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LookupResult,
    ModelIdentity,
    PromptLogprobs,
    Resumption,
    RoundReport,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
    TrafficClass,
    TrafficPolicy,
    VerifierInfo,
)
from saguaro.v1 import gateway_pb2, gateway_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from saguaro.wire.message_limit import limit_of, said_limit
from saguaro.wire.policy import policy_changes_from_proto
from saguaro.wire.verifier import verifier_info_to_proto

CONTEXT_LIMIT = 64
RUN_LENGTH = 3
RUN_SECONDS = 0.005  # between events, so that a gateway that keeps up relays each run by itself
SESSION_LIMITS = StoreLimits(ttl_seconds=60, max_sessions=16)
ROUNDS = tuple(RoundReport(r, 2, 2, LookupResult.HIT, 10, 20, 30, 40) for r in (1, 2))


@dataclass
class FakeVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Emits `answer`, RUN_LENGTH tokens a run, up to max_tokens; can hang or pause after a run, or raise instead."""

    answer: tuple[int, ...] = ()
    vocabulary_size: int = 0
    context_limit: int = CONTEXT_LIMIT
    name: str = "fake"
    fingerprint: str = "f" * 64
    hang_after_runs: int | None = None
    refusal: Exception | None = None  # before anything is admitted
    pause_after_runs: int | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)  # ends every pause
    error: Exception | None = None
    error_after_runs: int = 0
    requests: list[GenerationRequest] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    stopped_ids: list[str] = field(default_factory=list)
    num_running: int = 0  # as it reports
    num_runs: int = 0
    policies: list[dict[TrafficClass, ClassPolicy]] = field(default_factory=list)  # as they were pushed
    deaf_to_policies: int = 0  # how many of the next it refuses
    runs_before: list[int] = field(default_factory=list)  # sent to anyone when each request came
    max_message_bytes: int = 1 << 20

    def register(self, server: Any) -> None:
        """Handlers in place of the service's own."""

    async def GetVerifierInfo(self, request: Any, context: Any) -> verifier_pb2.GetVerifierInfoResponse:
        context.set_trailing_metadata(said_limit(self.max_message_bytes))
        model = ModelIdentity(self.name, self.fingerprint, self.vocabulary_size, self.context_limit, "float32")
        return verifier_info_to_proto(VerifierInfo(1, model, (1,), False, "no speculator configured", "", 4, 8))

    async def GetLoad(self, request: Any, context: Any) -> verifier_pb2.GetLoadResponse:
        return verifier_pb2.GetLoadResponse(num_running=self.num_running)

    async def SetPolicy(self, request: Any, context: Any) -> verifier_pb2.SetPolicyResponse:
        if self.deaf_to_policies:
            self.deaf_to_policies -= 1
            raise Unavailable("busy", 1.0)
        self.policies.append(policy_changes_from_proto(request.classes))
        return verifier_pb2.SetPolicyResponse()

    async def Relay(self, commands: Any, context: Any) -> AsyncIterator[Any]:
        most = limit_of(context.invocation_metadata(), self.max_message_bytes)
        async for response in Relay(self._begin, max_message_bytes=most).responses(commands):
            yield response

    async def _begin(self, request: GenerationRequest, sink: EventSink) -> GenerationHandle:
        self.requests.append(request)
        self.runs_before.append(self.num_runs)
        if self.refusal is not None:
            raise self.refusal

        async def emit() -> None:
            try:
                async for event in self._events(request):
                    sink(event)
                    await asyncio.sleep(RUN_SECONDS)
            except Exception as error:  # noqa: BLE001  # as the decode loop gives them
                sink(error)
            finally:
                self.ended.set()

        def abort() -> None:
            emitting.cancel()

        def stop() -> None:
            self.stopped_ids.append(request.request_id)
            self.stopped.set()

        emitting = asyncio.create_task(emit())
        return GenerationHandle(stop=stop, abort=abort)

    async def _events(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        yield GenerationStarted(request.sampling.seed, request.sampling.acceptance or AcceptanceMode.COUPLED)
        if request.prompt_logprobs:
            yield PromptLogprobs(tuple(TokenLogprobs(-float(token)) for token in request.prompt[1:]))
        tokens = self.answer[: request.max_tokens]
        resumed = request.resumption or Resumption((), 0)
        assert resumed.token_ids == tokens[: len(resumed.token_ids)]
        for index, start in enumerate(range(len(resumed.token_ids), len(tokens), RUN_LENGTH), resumed.num_rounds):
            if self.error is not None and index == self.error_after_runs:
                raise self.error
            if index == self.hang_after_runs:
                yield await self._stopped(request, start)
                return
            if index == self.pause_after_runs:
                await self.go_on.wait()
            run = tokens[start : start + RUN_LENGTH]
            self.num_runs += 1
            logprobs = tuple(TokenLogprobs(-float(token)) for token in run) if request.logprobs else ()
            provenance = (TokenProvenance.CACHED_DRAFT,) * (len(run) - 1) + (TokenProvenance.BONUS,)
            report = RoundReport(index, RUN_LENGTH, len(run) - 1, LookupResult.HIT, 10, 20, 30, 40)
            yield TokenRun(run, provenance, logprobs, report)
        if self.hang_after_runs == -(-len(tokens) // RUN_LENGTH):
            yield await self._stopped(request, len(tokens))
        else:
            reason = FinishReason.STOP if len(tokens) == len(self.answer) else FinishReason.LENGTH
            rounds = ROUNDS if request.include_rounds else ()
            report = SpeculationReport(not request.disable_speculation, "", 2, 4, 4, 2, 0, 0, rounds)
            yield GenerationFinished(reason, len(request.prompt), len(tokens), 0, report)

    async def _stopped(self, request: GenerationRequest, num_tokens: int) -> GenerationFinished:
        self.hangs.set()
        await self.stopped.wait()
        return GenerationFinished(FinishReason.ABORTED, len(request.prompt), num_tokens, 0, SpeculationReport(True))


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
    session_store: str = "memory",
    session_limits: StoreLimits = SESSION_LIMITS,
    max_session_tokens: int = 4096,
    resume_seconds: float = 0.0,
    guard: Guard | None = None,
    request_timeout_seconds: float = 30,
    limits: Limits | None = None,
    log_prompts: bool = False,
    drain_seconds: float = 10.0,
    num_workers: int = 1,
    text_seconds: float = 30,
    **fake: Any,
) -> AsyncIterator[House]:
    """A gateway with the text side in `folder`, whose verifier says `answer` and an end token to everything."""
    text = TextModel.from_folder(folder)
    vocabulary = {"vocabulary_size": text.vocabulary_size}
    verifier = FakeVerifier(answer=(*text.encode(answer), 1), **(vocabulary | fake))
    settings = GatewaySettings(port=0, http_port=0, admin_port=0, drain_seconds=drain_seconds)
    guard, metrics = guard or Guard(), GatewayMetrics()
    servicer = GatewayServicer(request_timeout_seconds)
    door = HttpDoor(
        request_timeout_seconds=request_timeout_seconds,
        max_body_bytes=max_body_bytes,
        guard=guard,
        metrics=metrics.registry,
    )
    http = HttpServer(settings, door.app, cut=door.cut)

    def register_gateway(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        return ["saguaro.v1.GatewayService"]

    async with (
        serving(verifier_on(0, verifier)) as verifier_server,
        serving(GrpcServer(settings, register_gateway, role="gateway", gate=guard.enter_by_metadata)) as server,
    ):
        verifiers = VerifierPool(verifier_server.address, max_message_bytes=1 << 20, keepalive_seconds=20)
        await verifiers.start()
        await verifiers.wait_until_usable(10)
        desk = PolicyDesk(TrafficPolicy(), verifiers)
        metrics.registry.register(PolicyCollector(desk))
        admin = HttpServer(settings, admin_app(metrics.registry, desk, door.ready), is_admin=True)
        workers = TextWorkers(folder, num_workers=num_workers, max_seconds=text_seconds)
        await workers.start()
        answers = Answers(
            text,
            workers,
            verifiers,
            limits or Limits(max_concurrent),
            metrics,
            patience_seconds=0.5,
            log_prompts=log_prompts,
        )
        store = open_store(session_store, session_limits)
        sessions = Sessions(answers, store, max_tokens=max_session_tokens)
        bounds = StreamBounds(resume_seconds, max_streams=max_concurrent)
        events, chunks = Streams[gateway_pb2.GenerateResponse](bounds, event_bytes), Streams[bytes](bounds, len)
        servicer.open(answers, sessions, events, desk)
        door.open(answers, sessions, chunks)
        await http.start()
        await admin.start()
        urls = f"http://127.0.0.1:{http.port}", f"http://127.0.0.1:{admin.port}"
        try:
            yield House(server.address, text, verifier, verifier_server, answers, urls[0], http, desk, urls[1])
        finally:
            await http.stop()
            await admin.stop()
            await events.close()
            await chunks.close()
            await store.close()
            await workers.close()
            await verifiers.close()


def verifier_on(port: int, fake: FakeVerifier) -> GrpcServer:
    """A server, not started, of the fake."""

    def register(server: Any) -> list[str]:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(fake, server)
        fake.register(server)
        return ["saguaro.v1.VerifierService"]

    settings = VerifierSettings(port=port, max_message_bytes=fake.max_message_bytes)
    return GrpcServer(settings, register, role="verifier")


@contextlib.asynccontextmanager
async def serving(server: GrpcServer) -> AsyncIterator[GrpcServer]:
    await server.start()
    await server.admit()
    try:
        yield server
    finally:
        await server.stop()
