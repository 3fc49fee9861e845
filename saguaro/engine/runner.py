"""What the loops ask of a model: the one interface of transformers' models and emulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from saguaro.engine.block_manager import BlockManager, SlotIds
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk


class Runner(Protocol):
    """One causal language model on paged memory. Not thread-safe: the engine's own thread calls it."""

    @property
    def block_manager(self) -> BlockManager:
        """Whose slots chunks write and see."""

    @property
    def context_limit(self) -> int:
        """Longest sequence that the model serves, tokens."""

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""

    @property
    def mask_cell_bytes(self) -> int:
        """Memory that a forward takes for one token and one slot of its context, at its peak."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    def forward(self, chunks: Sequence[Chunk]) -> Logits:
        """Runs all chunks in one pass, keeps their KV, and returns the logits that they want, until the next pass."""

    def copy_kv(self, sources: SlotIds, targets: SlotIds) -> None:
        """Copies the KV of slots to as many others; all are read before any is written."""

    def warm_up(self) -> None:
        """Pays for what is lazily set up."""
