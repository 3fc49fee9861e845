"""The target model at work: weights, engine thread, decode loop and link, started and stopped as one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from saguaro.config import VerifierSettings
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.calibration import calibrate
from saguaro.engine.engine_health import keep_engine_ready
from saguaro.engine.engine_thread import EngineThread
from saguaro.engine.grammar import ConstraintState
from saguaro.engine.start import start_model
from saguaro.engine.watched_runner import probe
from saguaro.errors import InvalidRequest, SequenceFault, ServiceFault
from saguaro.server import GenerationHandle, dial_tls
from saguaro.types import (
    PROTOCOL_VERSION,
    AcceptanceMode,
    ClassPolicy,
    EventSink,
    GenerationEvent,
    GenerationRequest,
    ModelIdentity,
    SpeculatorFrame,
    SpeculatorInfo,
    TrafficClass,
    VerifierInfo,
)
from verifier_service.audit import Auditor
from verifier_service.decode_loop import DecodeLoop
from verifier_service.engine_calls import on_engine_thread
from verifier_service.policy import Policies, parse_policy
from verifier_service.scaling import CachedScale
from verifier_service.sequence import Sequence
from verifier_service.speculations import Speculations
from verifier_service.speculator_link import LinkEvents, SendFrame, SpeculatorLink
from verifier_service.statuses import Statuses

log = logging.getLogger(__name__)

_CALIBRATED_ROWS = (1, 2, 3, 5, 9, 17)  # verifications of few sequences


class VerifierWorker:
    """Owns everything behind the verifier's port."""

    def __init__(self, settings: VerifierSettings) -> None:
        self._settings = settings
        self._sequence_ids = itertools.count(1)
        self._link: SpeculatorLink | None = None
        self._link_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the weights, do some forwards, begin to step and to look for the speculator."""
        self._event_loop = asyncio.get_running_loop()
        settings = self._settings
        model = await asyncio.to_thread(start_model, settings, settings.target, "target", numerics=settings.numerics)
        self._runner, self._compiler = model.runner, model.compiler
        just_in_time_ms = settings.just_in_time_ms
        fixed = parse_policy(settings.policy)
        self._policies = Policies(
            max_lookahead=settings.lookahead if fixed is None else fixed.lookahead,
            max_budget=settings.budget if fixed is None else fixed.budget,
        )
        planner, budget = self._policies.planner(settings.policy)
        self.speculations = Speculations(
            planner=planner,
            max_lookahead=self._policies.max_lookahead,
            max_budget=budget,
            vocab_size=self._runner.vocab_size,
            just_in_time_ns=None if just_in_time_ms is None else int(just_in_time_ms * 1e6),
            scale=CachedScale(settings.cached_scale),
            on_stall=self._reset_link,
        )
        self._auditor = (
            Auditor(self._runner, self._replay_of, rate=settings.audit_rate) if settings.audit_rate else None
        )
        self.loop = DecodeLoop(
            self._runner,
            self.speculations,
            deliver=self._deliver,
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            prefill_chunk_tokens=settings.prefill_chunk_tokens,
            auditor=self._auditor,
            wake=lambda: self._thread.wake(),
        )
        self._thread = EngineThread(
            "decode-loop",
            self.loop.step,
            self.loop.fail_running,
            probe=lambda: probe(self._runner),
            watch=self._runner.watch,
        )
        await asyncio.to_thread(calibrate, self._runner, self._policies.forward, _CALIBRATED_ROWS)
        self._eos_token_ids = frozenset(model.eos_token_ids)
        self.identity = self._identity_of(model.identity)
        self._thread.start()
        self._statuses = Statuses(self.speculations.receive_statuses, self.loop.post, self._thread.wake)
        if settings.speculator and self._policies.max_lookahead:
            self._link = SpeculatorLink(
                settings.speculator,
                self.identity,
                LinkEvents(self._on_attached, self._on_frame, self._on_detached),
                self.loop.traffic,
                reconnect_seconds=settings.reconnect_seconds,
                delay_seconds=settings.link_delay_ms / 1e3,
                tls=dial_tls(settings),
            )
            self._link_task = asyncio.create_task(self._keep_link(self._link))
        else:
            self.speculations.detached_reason = (
                "the verifier's lookahead is 0" if settings.speculator else "no speculator is configured"
            )

    async def keep_ready(self, say_ready: Callable[[bool], Awaitable[None]]) -> None:
        """Health follows the engine. Raises ServiceFault where engine or link cannot go on."""
        health = asyncio.ensure_future(keep_engine_ready(self._thread, say_ready))
        link = self._link_task
        try:
            await asyncio.wait([health] if link is None else [health, link], return_when=asyncio.FIRST_COMPLETED)
            if link is not None and link.done():
                cause = None if link.cancelled() else link.exception()
                raise ServiceFault("the task that keeps the link to the speculator has ended") from cause
            await health
        finally:
            health.cancel()
            await asyncio.gather(health, return_exceptions=True)

    async def stop(self) -> None:
        """End the link and the engine thread; harmless when `start` did not finish."""
        if self._link_task is not None:
            self._link_task.cancel()
            await asyncio.gather(self._link_task, return_exceptions=True)
        if hasattr(self, "_thread"):
            await asyncio.to_thread(self._thread.stop)

    def _identity_of(self, identity: ModelIdentity) -> ModelIdentity:
        """The model as it is served: its context is no longer than what the KV pool holds."""
        return replace(
            identity,
            name=self._settings.model_name or identity.name,
            context_limit_tokens=min(self._runner.context_limit, self._settings.kv_tokens),
        )

    # --- the link, from the event loop to the engine thread -----------------------------------------------------------

    async def _keep_link(self, link: SpeculatorLink) -> None:
        """A fault of our own in the link costs speculation, not answers: it is begun anew."""
        while True:
            try:
                await link.run()
            except Exception:
                log.exception("the link to the speculator failed; it is begun anew")
            self._on_detached("the link to the speculator failed inside the verifier; its log has the cause")
            await asyncio.sleep(self._settings.reconnect_seconds)

    def _on_attached(self, send: SendFrame, info: SpeculatorInfo) -> None:
        self.loop.post(
            lambda: self.speculations.attach(send, info.max_lookahead, info.max_budget, info.acceptance_modes)
        )

    def _on_frame(self, frame: SpeculatorFrame) -> None:
        now_ns = time.monotonic_ns()
        self.speculations.receive_entries(frame, now_ns)
        self._statuses.put(frame, now_ns)

    def _on_detached(self, reason: str) -> None:
        self.loop.post(lambda: self.speculations.detach(reason))

    def _reset_link(self) -> None:
        if self._link is not None:
            self._link.reset()

    def _deliver(self, events: list[tuple[EventSink, GenerationEvent | Exception]]) -> None:
        """From the engine thread; events for a loop that is closed have nobody left to read them."""
        if not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(_hand_out, events)

    # --- for the service ----------------------------------------------------------------------------------------------

    def acceptance(self, traffic_class: TrafficClass) -> AcceptanceMode:
        """The mode of requests of the class that name none."""
        return (
            self.speculations.plans.policy.of(traffic_class).acceptance
            or AcceptanceMode[self._settings.acceptance.upper()]
        )

    async def compile(self, request: GenerationRequest) -> ConstraintState | None:
        """What `submit` needs of a request: its constraint, where the output begins, or goes on if it was resumed.

        Raises InvalidRequest where it cannot be served.
        """
        if request.sampling.constraint is None:
            return None
        state = await asyncio.wrap_future(self._compiler.begin(request.sampling.constraint))
        if request.resumption is not None:
            try:
                await asyncio.to_thread(state.advance, request.resumption.token_ids)
            except SequenceFault as fault:
                raise InvalidRequest(
                    "emitted_token_ids", f"emitted_token_ids do not fit the constraint: {fault}"
                ) from None
        return state

    def submit(
        self, request: GenerationRequest, sink: EventSink, constraint: ConstraintState | None = None
    ) -> GenerationHandle:
        """Start a generation, `constraint` its own; its events come to `sink` on the event loop."""
        sequence = self._sequence(request, sink, constraint)
        self.loop.submit(sequence)
        return GenerationHandle(stop=lambda: self.loop.stop(sequence), abort=lambda: self.loop.abort(sequence))

    def _replay_of(self, request: GenerationRequest) -> Sequence | None:
        """None while its constraint compiles, which would hold the engine thread up; it is woken then."""
        state = None
        if request.sampling.constraint is not None:
            compiled = self._compiler.begin(request.sampling.constraint)
            if not compiled.done():
                compiled.add_done_callback(lambda _: self._thread.wake())
                return None
            state = compiled.result()
        return self._sequence(request, lambda event: None, state)

    def _sequence(self, request: GenerationRequest, sink: EventSink, constraint: ConstraintState | None) -> Sequence:
        return Sequence(
            next(self._sequence_ids),
            request,
            BlockTable(self._runner.block_manager),
            sink,
            eos_token_ids=self._eos_token_ids,
            length_limit=self.identity.context_limit_tokens,
            constraint=constraint,
        )

    async def change_policy(self, plan: str, changes: Mapping[TrafficClass, ClassPolicy]) -> None:
        """Plan by "auto" or "fixed:..", unless it is empty, and keep to other bounds for these classes.

        Returns when all of it is in force. Raises InvalidRequest, and changes nothing, for a plan that cannot be had;
        Unavailable where the engine does not take it in time: then it may still come into force.
        """
        planned = self._policies.planner(plan) if plan else None

        def change() -> None:
            if planned is not None:
                self.speculations.follow(*planned)
            # What the policy is now, only the engine thread knows: others may be changing it.
            self.speculations.keep_to(self.speculations.plans.policy.changed(dict(changes)))

        await on_engine_thread(self.loop.post, change)

    @property
    def num_rows(self) -> int:
        """The model's embeddings: ids below can be computed, whether the tokenizer knows them or not."""
        return self._runner.vocab_size

    @property
    def blocks(self) -> tuple[int, int]:
        """KV blocks in all, and free."""
        return self._runner.block_manager.num_blocks, self._runner.block_manager.num_free

    @property
    def info(self) -> VerifierInfo:
        """Who this verifier is."""
        reason, planner = self.speculations.detached_reason, self.speculations.planner
        return VerifierInfo(
            protocol_version=PROTOCOL_VERSION,
            model=self.identity,
            eos_token_ids=tuple(sorted(self._eos_token_ids)),
            speculating=reason is None,
            not_speculating_reason=reason or "",
            speculator_address=self._settings.speculator,
            lookahead=self.speculations.plans.lookahead(TrafficClass.BALANCED),
            budget=self.speculations.budget,
            break_even_batch=planner.plan.break_even_batch,
            cache_hit_rate=planner.hit_rate,
            predicted_rate=planner.plan.predicted_rate,
            predicted_plain_rate=planner.plan.plain_rate,
            num_audited=self._auditor.num_audited if self._auditor else 0,
            num_mismatched=self._auditor.num_mismatched if self._auditor else 0,
            classes=self.speculations.plans.policy,
        )


def _hand_out(events: list[tuple[EventSink, GenerationEvent | Exception]]) -> None:
    """An event that its sink cannot take is a fault of that generation; the others have theirs."""
    for sink, event in events:
        try:
            sink(event)
        except Exception:
            log.exception("an event could not be handed on; its generation ends")
            with contextlib.suppress(Exception):
                sink(SequenceFault("an event could not be sent; the verifier's log has the cause"))
