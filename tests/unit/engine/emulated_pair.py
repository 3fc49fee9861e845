"""Emulated pairs that take no time, and short ways to ask them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saguaro.emulation.profile import ForwardTime, Profile, Role
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.emulated import EmulatedRunner
from saguaro.engine.emulated_memory import Words
from saguaro.engine.ragged_batch import Chunk

NO_TIME = ForwardTime(base_ms=0)


def profile(**changes: Any) -> Profile:
    values: dict[str, Any] = {
        "name": "test",
        "vocabulary": 400,
        "acceptance_rate": 0.7,
        "rank_exponent": 1.2,
        "context_limit": 4096,
        "target": NO_TIME,
        "draft": NO_TIME,
    }
    return Profile(**(values | changes))


def runner(role: Role = Role.TARGET, *, block_size: int = 4, **changes: Any) -> EmulatedRunner:
    return EmulatedRunner(profile(**changes), role, num_blocks=256, block_size=block_size)


def prefill(model: EmulatedRunner, table: BlockTable, token_ids: Sequence[int], start: int = 0) -> Tensor:
    """Logits after each token, [q, vocab], copied."""
    table.reserve(start + len(token_ids))
    return model.forward([Chunk.causal(token_ids, start, table, num_logits=len(token_ids))]).rows.clone()


def alone(model: EmulatedRunner, token_ids: Sequence[int]) -> Tensor:
    """Logits after each token of a sequence that is computed in one forward."""
    with BlockTable(model.block_manager) as table:
        return prefill(model, table, token_ids)


def random_hashes(count: int, seed: int) -> Words:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def places(values: Tensor, token_ids: Tensor) -> Tensor:
    """How many tokens of each row have a larger logit than the given one."""
    return (values > values.gather(1, token_ids[:, None])).sum(1).to(torch.int64)
