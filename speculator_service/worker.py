"""The draft model at work: weights, engine thread and scheduler, started and stopped as one."""

from __future__ import annotations

import asyncio
import gc
import sys

import torch

from saguaro.config import SpeculatorSettings
from saguaro.emulation.profile import Role
from saguaro.engine.emulated import EmulatedModel, EmulatedRunner, load_emulated
from saguaro.engine.engine_thread import EngineThread
from saguaro.engine.loading import LoadedModel, load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.runner import Runner
from saguaro.progress import report_progress
from saguaro.types import PROTOCOL_VERSION, AcceptanceMode, SpeculatorInfo
from speculator_service.scheduler import DraftScheduler
from speculator_service.stream import Limits

_LEASE_CHECK_SECONDS = 1.0
_SWITCH_SECONDS = 0.0005


class SpeculatorWorker:
    """Owns everything behind the speculator's port."""

    def __init__(self, settings: SpeculatorSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Load the weights, do one warm forward, begin to step."""
        self._loaded = await asyncio.to_thread(self._load)
        settings = self._settings
        self.scheduler = DraftScheduler(
            self._runner,
            Limits(
                max_sequences=settings.max_sequences,
                max_lookahead=settings.max_lookahead,
                max_budget=settings.max_budget,
                prefill_chunk_tokens=settings.prefill_chunk_tokens,
                lease_seconds=settings.lease_seconds,
            ),
            acceptance_prior=settings.acceptance_prior,
            miss_exponent=settings.miss_exponent,
            wake=lambda: self._thread.wake(),
        )
        self._thread = EngineThread("draft-scheduler", self._step, lambda _: self.scheduler.refuse_all())
        # What was loaded lives as long as the process: the collector need not walk through it in the midst of a round.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SWITCH_SECONDS)  # the engine thread must not wait 5 ms to get the interpreter back
        self._thread.start()

    async def stop(self) -> None:
        """End the engine thread; harmless when `start` did not finish."""
        if hasattr(self, "_thread"):
            await asyncio.to_thread(self._thread.stop)

    def _step(self) -> float:
        return 0 if self.scheduler.step() else _LEASE_CHECK_SECONDS

    def _load(self) -> LoadedModel | EmulatedModel:
        settings = self._settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        num_blocks = -(-settings.kv_tokens // settings.block_size)
        if settings.emulate is not None:
            emulated = load_emulated(settings.emulate)
            self._runner: Runner = EmulatedRunner(
                emulated.profile, Role.DRAFT, num_blocks=num_blocks, block_size=settings.block_size
            )
            self._runner.warm_up()
            return emulated
        loaded = load_model(
            settings.draft,
            dtype=settings.dtype,
            device=settings.device,
            linear=settings.linear,
            role="draft",
            embeddings_from=settings.target,
            progress=lambda label, fraction: report_progress("speculator", label, fraction),
        )
        self._runner = ModelRunner(
            loaded.model,
            num_blocks=num_blocks,
            block_size=settings.block_size,
            device=settings.device,
        )
        report_progress("speculator", "warming up", None)
        self._runner.warm_up()
        return loaded

    @property
    def info(self) -> SpeculatorInfo:
        """The speculator's side of the handshake."""
        blocks = self._runner.block_manager
        return SpeculatorInfo(
            protocol_version=PROTOCOL_VERSION,
            model=self._loaded.identity,
            acceptance_modes=(AcceptanceMode.COUPLED,),
            max_lookahead=self._settings.max_lookahead,
            max_budget=self._settings.max_budget,
            num_kv_blocks=blocks.num_blocks,
            free_kv_blocks=blocks.num_free,
            num_sequences=self.scheduler.num_sequences,
        )
