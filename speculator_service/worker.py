"""The draft model at work: weights, engine thread and scheduler, started and stopped as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from saguaro.config import SpeculatorSettings
from saguaro.engine.calibration import calibrate
from saguaro.engine.engine_health import keep_engine_ready
from saguaro.engine.engine_thread import EngineThread
from saguaro.engine.start import start_model
from saguaro.engine.watched_runner import probe
from saguaro.types import PROTOCOL_VERSION, AcceptanceMode, SpeculatorInfo
from speculator_service.scheduler import DraftScheduler
from speculator_service.stream import Limits

_LEASE_CHECK_SECONDS = 1.0
_CALIBRATED_ROWS = (1, 2, 4, 8, 16, 32)  # steps of one sequence's branches


class SpeculatorWorker:
    """Owns everything behind the speculator's port."""

    def __init__(self, settings: SpeculatorSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Load the weights, do one warm forward, begin to step."""
        settings = self._settings
        self._model = await asyncio.to_thread(
            start_model, settings, settings.draft, "draft", embeddings_from=settings.target
        )
        self.scheduler = DraftScheduler(
            self._model.runner,
            Limits(
                max_sequences=settings.max_sequences,
                max_lookahead=settings.max_lookahead,
                max_budget=settings.max_budget,
                prefill_chunk_tokens=settings.prefill_chunk_tokens,
                lease_seconds=settings.lease_seconds,
                max_forward_bytes=settings.max_forward_mebibytes << 20,
            ),
            acceptance_prior=settings.acceptance_prior,
            miss_exponent=settings.miss_exponent,
            compiler=self._model.compiler,
            wake=lambda: self._thread.wake(),
        )
        await asyncio.to_thread(calibrate, self._model.runner, self.scheduler.forward_time, _CALIBRATED_ROWS)
        self._thread = EngineThread(
            "draft-scheduler",
            self._step,
            lambda _: self.scheduler.refuse_all(),
            probe=lambda: probe(self._model.runner),
            watch=self._model.runner.watch,
        )
        self._thread.start()

    async def keep_ready(self, say_ready: Callable[[bool], Awaitable[None]]) -> None:
        """Health follows the engine. Raises ServiceFault where it cannot go on."""
        await keep_engine_ready(self._thread, say_ready)

    async def stop(self) -> None:
        """End the engine thread; harmless when `start` did not finish."""
        if hasattr(self, "_thread"):
            await asyncio.to_thread(self._thread.stop)

    def _step(self) -> float:
        if self.scheduler.step():
            return 0
        rests_until_ns = self.scheduler.rests_until_ns
        if rests_until_ns is None:
            return _LEASE_CHECK_SECONDS
        return min(max(rests_until_ns - time.monotonic_ns(), 0) / 1e9, _LEASE_CHECK_SECONDS)

    @property
    def info(self) -> SpeculatorInfo:
        """The speculator's side of the handshake."""
        blocks = self._model.runner.block_manager
        return SpeculatorInfo(
            protocol_version=PROTOCOL_VERSION,
            model=self._model.identity,
            acceptance_modes=tuple(AcceptanceMode),
            max_lookahead=self._settings.max_lookahead,
            max_budget=self._settings.max_budget,
            num_kv_blocks=blocks.num_blocks,
            free_kv_blocks=blocks.num_free,
            num_sequences=self.scheduler.num_sequences,
        )
