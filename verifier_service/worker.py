"""The target model at work: weights, engine thread, decode loop and link, started and stopped as one."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

import torch

from saguaro.config import VerifierSettings
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.engine_thread import EngineThread
from saguaro.engine.loading import LoadedModel, load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.progress import report_progress
from saguaro.types import (
    PROTOCOL_VERSION,
    GenerationRequest,
    ModelIdentity,
    SpeculatorFrame,
    SpeculatorInfo,
    VerifierInfo,
)
from verifier_service.decode_loop import DecodeLoop
from verifier_service.sequence import EventSink, Sequence
from verifier_service.speculations import Speculations
from verifier_service.speculator_link import LinkEvents, SendFrame, SpeculatorLink


class VerifierWorker:
    """Owns everything behind the verifier's port."""

    def __init__(self, settings: VerifierSettings) -> None:
        self._settings = settings
        self._sequence_ids = itertools.count(1)
        self._link: SpeculatorLink | None = None
        self._link_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the weights, do one warm forward, begin to step and to look for the speculator."""
        loaded = await asyncio.to_thread(self._load)
        settings = self._settings
        just_in_time_ms = settings.just_in_time_ms
        self.speculations = Speculations(
            lookahead=settings.lookahead,
            budget=settings.budget,
            vocab_size=self._runner.vocab_size,
            just_in_time_ns=None if just_in_time_ms is None else int(just_in_time_ms * 1e6),
            on_stall=self._reset_link,
        )
        self.loop = DecodeLoop(
            self._runner,
            self.speculations,
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            prefill_chunk_tokens=settings.prefill_chunk_tokens,
            wake=lambda: self._thread.wake(),
        )
        self._thread = EngineThread("decode-loop", self.loop.step, self.loop.fail_running)
        self._eos_token_ids = frozenset(loaded.eos_token_ids)
        self.identity = self._identity_of(loaded)
        self._thread.start()
        if settings.speculator and settings.lookahead:
            self._link = SpeculatorLink(
                settings.speculator,
                self.identity,
                LinkEvents(self._on_attached, self._on_frame, self._on_detached),
                reconnect_seconds=settings.reconnect_seconds,
            )
            self._link_task = asyncio.create_task(self._link.run())
        else:
            self.speculations.detached_reason = (
                "the verifier's lookahead is 0" if settings.speculator else "no speculator is configured"
            )

    async def stop(self) -> None:
        """End the link and the engine thread; harmless when `start` did not finish."""
        if self._link_task is not None:
            self._link_task.cancel()
            await asyncio.gather(self._link_task, return_exceptions=True)
        if hasattr(self, "_thread"):
            await asyncio.to_thread(self._thread.stop)

    def _load(self) -> LoadedModel:
        settings = self._settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        loaded = load_model(
            settings.target,
            dtype=settings.dtype,
            device=settings.device,
            embeddings_from=None,
            progress=lambda label, fraction: report_progress("verifier", label, fraction),
        )
        self._runner = ModelRunner(
            loaded.model,
            num_blocks=-(-settings.kv_tokens // settings.block_size),
            block_size=settings.block_size,
            device=settings.device,
        )
        report_progress("verifier", "warming up", None)
        self._runner.warm_up()
        return loaded

    def _identity_of(self, loaded: LoadedModel) -> ModelIdentity:
        """The model as it is served: its context is no longer than what the KV pool holds."""
        identity = loaded.identity
        return ModelIdentity(
            name=self._settings.model_name or identity.name,
            tokenizer_fingerprint=identity.tokenizer_fingerprint,
            usable_vocabulary_tokens=identity.usable_vocabulary_tokens,
            context_limit_tokens=min(self._runner.context_limit, self._settings.kv_tokens),
            dtype=identity.dtype,
        )

    # --- the link, from the event loop to the engine thread -----------------------------------------------------------

    def _on_attached(self, send: SendFrame, info: SpeculatorInfo) -> None:
        self.loop.post(lambda: self.speculations.attach(send, info.max_lookahead, info.max_budget))

    def _on_frame(self, frame: SpeculatorFrame) -> None:
        self.loop.post(lambda: self.speculations.receive(frame, time.monotonic_ns()))

    def _on_detached(self, reason: str) -> None:
        self.loop.post(lambda: self.speculations.detach(reason))

    def _reset_link(self) -> None:
        if self._link is not None:
            self._link.reset()

    # --- for the service ----------------------------------------------------------------------------------------------

    def submit(self, request: GenerationRequest, sink: EventSink) -> Callable[[], None]:
        """Start a generation; events come to `sink` from the engine thread. Returns how to abort it."""
        sequence = Sequence(
            next(self._sequence_ids),
            request,
            BlockTable(self._runner.block_manager),
            sink,
            eos_token_ids=self._eos_token_ids,
            length_limit=self.identity.context_limit_tokens,
        )
        self.loop.submit(sequence)
        return lambda: self.loop.abort(sequence)

    @property
    def blocks(self) -> tuple[int, int]:
        """KV blocks in all, and free."""
        return self._runner.block_manager.num_blocks, self._runner.block_manager.num_free

    @property
    def info(self) -> VerifierInfo:
        """Who this verifier is."""
        reason = self.speculations.detached_reason
        return VerifierInfo(
            protocol_version=PROTOCOL_VERSION,
            model=self.identity,
            eos_token_ids=tuple(sorted(self._eos_token_ids)),
            speculating=reason is None,
            not_speculating_reason=reason or "",
            speculator_address=self._settings.speculator,
            lookahead=self.speculations.lookahead,
            budget=self.speculations.budget,
        )
