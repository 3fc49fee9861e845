"""From a service's settings to a runner that has done its first forward: real weights, or an emulated device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from saguaro.config import ModelSettings
from saguaro.config.services import Numerics
from saguaro.emulation.profile import Role
from saguaro.emulation.tokenizer import tokenizer_folder as emulated_tokenizer_folder
from saguaro.engine import fixed_shape
from saguaro.engine.emulated import EmulatedRunner, load_emulated
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.step_watch import StepWatch
from saguaro.engine.watched_runner import WatchedRunner
from saguaro.progress import report_progress
from saguaro.types import ModelIdentity, TokenIds

_EMULATED = {"target": Role.TARGET, "draft": Role.DRAFT}


@dataclass(frozen=True, slots=True)
class StartedModel:
    """A warm runner, and what others must know of its model."""

    runner: WatchedRunner
    identity: ModelIdentity
    eos_token_ids: TokenIds
    compiler: ConstraintCompiler  # of constraints on its output


def start_model(
    settings: ModelSettings,
    spec: str,
    role: Literal["target", "draft"],
    *,
    embeddings_from: str | None = None,
    numerics: Numerics = "fast",
) -> StartedModel:
    """Load the model that `spec` names, or the emulated one of the settings, and warm it up; reports progress.

    Blocks for seconds to minutes. Raises ConfigurationError where the model cannot be had or does not run.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    num_blocks = -(-settings.kv_tokens // settings.block_size)
    if settings.emulate is not None:
        emulated = load_emulated(settings.emulate)
        device = EmulatedRunner(
            emulated.profile, _EMULATED[role], num_blocks=num_blocks, block_size=settings.block_size
        )
        device.warm_up()
        folder = emulated_tokenizer_folder(emulated.profile.vocabulary)
        watched = WatchedRunner(device, StepWatch(settings.stall_seconds))
        return _started(watched, emulated.identity, emulated.eos_token_ids, folder)
    loaded = load_model(
        spec,
        dtype=settings.dtype,
        device=settings.device,
        linear=settings.linear,
        role=role,
        embeddings_from=embeddings_from,
        progress=lambda label, fraction: report_progress(settings.role, label, fraction),
    )
    runner = ModelRunner(
        loaded.model,
        num_blocks=num_blocks,
        block_size=settings.block_size,
        device=settings.device,
        numerics=numerics,
        num_tokens=loaded.identity.usable_vocabulary_tokens,
    )
    report_progress(settings.role, "warming up", None)
    runner.warm_up()
    if numerics == "fixed-shape":
        report_progress(settings.role, "proving fixed-shape numerics", None)
        fixed_shape.prove(runner)
    watched = WatchedRunner(runner, StepWatch(settings.stall_seconds))
    return _started(watched, loaded.identity, loaded.eos_token_ids, loaded.tokenizer_folder)


def _started(
    runner: WatchedRunner, identity: ModelIdentity, eos_token_ids: TokenIds, tokenizer_folder: Path
) -> StartedModel:
    num_tokens = identity.usable_vocabulary_tokens
    compiler = ConstraintCompiler.for_model(tokenizer_folder, num_tokens=num_tokens, eos_token_ids=eos_token_ids)
    return StartedModel(runner, identity, eos_token_ids, compiler)
