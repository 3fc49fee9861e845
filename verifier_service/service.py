"""The gRPC face of the verifier: judge the request, pass events on, abort when the caller goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

import grpc

from saguaro.engine.grammar import ConstraintState
from saguaro.errors import InvalidRequest
from saguaro.server import GenerationHandle, Relay
from saguaro.types import (
    EventSink,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    ModelIdentity,
    Resumption,
    SpeculationReport,
)
from saguaro.v1 import verifier_pb2 as pb
from saguaro.v1.verifier_pb2_grpc import VerifierServiceServicer
from saguaro.validation import (
    validate_ignored_end,
    validate_logprobs,
    validate_max_tokens,
    validate_model,
    validate_policies,
    validate_prompt,
    validate_sampled_tokens,
    validate_sampling,
    validate_vocabulary,
)
from saguaro.wire.message_limit import limit_of, said_limit
from saguaro.wire.policy import policy_changes_from_proto
from saguaro.wire.verifier import (
    event_to_proto,
    generation_request_from_proto,
    resume_request_from_proto,
    verifier_info_to_proto,
)
from verifier_service.worker import VerifierWorker


def validate(request: GenerationRequest, model: ModelIdentity, num_rows: int) -> None:
    """Raises ModelNotFound, or InvalidRequest that names limit and value; `num_rows`: the model's embeddings."""
    validate_model(request.model, model)
    if not request.request_id:
        raise InvalidRequest("request_id", "request_id is empty; choose one that no running generation has")
    validate_prompt(request.prompt, model, num_rows=num_rows)
    validate_sampling(request.sampling)
    validate_sampled_tokens(request.sampling, model)
    validate_ignored_end(request.sampling.constraint, ignore_eos=request.ignore_eos)
    validate_max_tokens(request.max_tokens, request.sampling.min_tokens)
    validate_logprobs(request.top_logprobs, wanted=request.logprobs or request.prompt_logprobs)
    if request.resumption is not None:
        validate_resumption(request, request.resumption, model, num_rows)


def validate_resumption(
    request: GenerationRequest, resumption: Resumption, model: ModelIdentity, num_rows: int
) -> None:
    """Raises InvalidRequest for what the request cannot have emitted."""
    emitted, field = len(resumption.token_ids), "emitted_token_ids"
    validate_vocabulary(field, resumption.token_ids, model, num_rows=num_rows)
    room = model.context_limit_tokens - len(request.prompt)
    most = room if request.max_tokens is None else min(request.max_tokens, room)
    if emitted > most:
        raise InvalidRequest(field, f"emitted_token_ids has {emitted} tokens; this request emits at most {most}")
    if not bool(emitted) <= resumption.num_rounds <= emitted:
        raise InvalidRequest(
            "num_rounds",
            f"num_rounds is {resumption.num_rounds} with {emitted} emitted tokens; each round emits at least one",
        )
    if emitted and request.prompt_logprobs:
        raise InvalidRequest(
            "generation.prompt_logprobs", "prompt_logprobs is true beside emitted tokens, which come after them"
        )


def _never_begun(generation: GenerationRequest) -> GenerationFinished:
    """The last event of a generation that was aborted before the decode loop had it."""
    num_emitted = 0 if generation.resumption is None else len(generation.resumption.token_ids)
    report = SpeculationReport(speculating=False, reason="the request was aborted before it began")
    return GenerationFinished(FinishReason.ABORTED, len(generation.prompt), num_emitted, 0, report)


def _nothing() -> None:
    """What there is to stop of a generation that never began."""


class VerifierService(VerifierServiceServicer):
    """Thin: everything that decides is in the worker."""

    def __init__(self, worker: VerifierWorker, max_message_bytes: int) -> None:
        """Messages have at most `max_message_bytes`, and fewer to callers that take fewer."""
        self._worker = worker
        self._max_message_bytes = max_message_bytes
        self._stops: dict[str, Callable[[], None]] = {}
        self._relays: set[Relay] = set()

    async def Generate(
        self, request: pb.VerifierServiceGenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.VerifierServiceGenerateResponse]:
        """Stream a generation's events; the caller's going away, in any way, aborts it."""
        async with contextlib.aclosing(self._responses(generation_request_from_proto(request))) as responses:
            async for response in responses:
                yield response

    async def Resume(
        self, request: pb.ResumeRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.VerifierServiceGenerateResponse]:
        """Stream the rest of a generation that was begun elsewhere."""
        async with contextlib.aclosing(self._responses(resume_request_from_proto(request))) as responses:
            async for response in responses:
                yield response

    async def Relay(
        self, commands: AsyncIterator[pb.RelayRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.RelayResponse]:
        """Stream the events of all generations that come in; the caller's going away aborts them."""
        most = limit_of(context.invocation_metadata(), self._max_message_bytes)
        relay = Relay(self._begin, max_message_bytes=most)
        self._relays.add(relay)
        try:
            async with contextlib.aclosing(relay.responses(commands)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._relays.remove(relay)

    async def drain(self) -> None:
        """No new generations; relays end with those that run."""
        for relay in self._relays:
            relay.drain("the verifier is draining")

    async def _responses(self, generation: GenerationRequest) -> AsyncGenerator[pb.VerifierServiceGenerateResponse]:
        events: asyncio.Queue[GenerationEvent | Exception] = asyncio.Queue()
        handle = await self._begin(generation, events.put_nowait)
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                yield event_to_proto(event)
                if isinstance(event, GenerationFinished):
                    return
        finally:
            handle.abort()

    async def _begin(self, generation: GenerationRequest, sink: EventSink) -> GenerationHandle:
        """Admit a generation; its first event is Started. Raises from the error tree where it is refused."""
        validate(generation, self._worker.identity, self._worker.num_rows)
        acceptance = generation.sampling.acceptance or self._worker.acceptance(generation.traffic_class)
        generation = replace(generation, sampling=replace(generation.sampling, acceptance=acceptance))
        request_id = generation.request_id
        if request_id in self._stops:
            raise InvalidRequest("request_id", f'a generation "{request_id}" runs already')
        with contextlib.ExitStack() as if_not_begun:
            if_not_begun.callback(self._stops.pop, request_id, None)
            constraint = await self._compiled(generation)
            if isinstance(constraint, GenerationFinished):
                sink(GenerationStarted(generation.sampling.seed, acceptance))
                sink(constraint)
                return GenerationHandle(stop=_nothing, abort=_nothing)
            handle = self._worker.submit(generation, sink, constraint)
            if_not_begun.callback(handle.abort)
            self._stops[request_id] = handle.stop
            sink(GenerationStarted(generation.sampling.seed, acceptance))
            if_not_begun.pop_all()

        def abort() -> None:
            if self._stops.get(request_id) is handle.stop:
                del self._stops[request_id]
            handle.abort()

        return GenerationHandle(stop=handle.stop, abort=abort)

    async def _compiled(self, generation: GenerationRequest) -> ConstraintState | GenerationFinished | None:
        """The request's constraint, if it has one; its last event where it is aborted meanwhile."""
        stopped = asyncio.Event()
        self._stops[generation.request_id] = stopped.set
        if generation.sampling.constraint is None:
            return None
        compiling = asyncio.ensure_future(self._worker.compile(generation))
        stopping = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait((compiling, stopping), return_when=asyncio.FIRST_COMPLETED)
            return _never_begun(generation) if stopped.is_set() else await compiling
        finally:
            compiling.cancel()
            stopping.cancel()
            await asyncio.gather(compiling, stopping, return_exceptions=True)

    async def Abort(self, request: pb.AbortRequest, context: grpc.aio.ServicerContext) -> pb.AbortResponse:
        """End a generation: its stream ends with Finished. Unknown ids are fine."""
        stop = self._stops.get(request.request_id)
        if stop is not None:
            stop()
        return pb.AbortResponse()

    async def GetVerifierInfo(
        self, request: pb.GetVerifierInfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetVerifierInfoResponse:
        """Who the verifier is and whether it is speculated; metadata say what messages it takes."""
        context.set_trailing_metadata(said_limit(self._max_message_bytes))
        return verifier_info_to_proto(self._worker.info)

    async def SetPolicy(self, request: pb.SetPolicyRequest, context: grpc.aio.ServicerContext) -> pb.SetPolicyResponse:
        """Change how far the verifier speculates; nothing changes where a part of it is refused."""
        changes = policy_changes_from_proto(request.classes)
        validate_policies(changes)
        await self._worker.change_policy(request.policy, changes)
        return pb.SetPolicyResponse()

    async def GetLoad(self, request: pb.GetLoadRequest, context: grpc.aio.ServicerContext) -> pb.GetLoadResponse:
        """How busy the verifier is."""
        scheduler = self._worker.loop.scheduler
        num_blocks, num_free = self._worker.blocks
        return pb.GetLoadResponse(
            num_running=len(scheduler.running),
            num_waiting=self._worker.loop.num_waiting,
            num_kv_blocks=num_blocks,
            free_kv_blocks=num_free,
            num_preemptions=scheduler.num_preemptions,
            num_stale_messages=self._worker.speculations.num_stale,
        )
