"""A runner that tells a watch of each forward."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from saguaro.engine.block_manager import BlockManager, BlockTable, SlotIds
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner
from saguaro.engine.step_watch import StepWatch

log = logging.getLogger(__name__)

_PROBE_TOKENS = 3


class WatchedRunner:
    """See `runner.Runner`, whose interface this is."""

    def __init__(self, runner: Runner, watch: StepWatch) -> None:
        self.watched = runner
        self.watch = watch

    @property
    def block_manager(self) -> BlockManager:
        """Whose slots chunks write and see."""
        return self.watched.block_manager

    @property
    def context_limit(self) -> int:
        """Longest sequence that the model serves, tokens."""
        return self.watched.context_limit

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return self.watched.vocab_size

    @property
    def mask_cell_bytes(self) -> int:
        """See `runner.Runner`."""
        return self.watched.mask_cell_bytes

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self.watched.device

    def forward(self, chunks: Sequence[Chunk]) -> Logits:
        """See `runner.Runner`."""
        num_tokens = sum(len(chunk.token_ids) for chunk in chunks)
        began_ns = self.watch.begin_forward(num_tokens)
        logits = self.watched.forward(chunks)
        self.watch.end_forward(num_tokens, began_ns)
        return logits

    def copy_kv(self, sources: SlotIds, targets: SlotIds) -> None:
        """See `runner.Runner`."""
        self.watched.copy_kv(sources, targets)

    def warm_up(self) -> None:
        """See `runner.Runner`."""
        self.watched.warm_up()


def probe(runner: Runner) -> None:
    """A small prompt and a verification after it, to find out whether the model works. Raises what its forwards raise,
    and OutOfBlocks where sequences hold all blocks.
    """
    num_tokens = min(_PROBE_TOKENS, runner.context_limit)
    with BlockTable(runner.block_manager) as table:
        table.reserve(num_tokens)
        if num_tokens > 1:
            runner.forward([Chunk.causal([0], 0, table, num_logits=0)])
        runner.forward([Chunk.causal([0] * (num_tokens - 1) or [0], min(1, num_tokens - 1), table, num_logits=1)])


def forward_works(runner: Runner, slots: SlotIds) -> bool:
    """Whether a forward of one token succeeds, with its KV in `slots` [1], where one that failed was about to write."""
    try:
        runner.forward([Chunk(token_ids=[0], positions=[0], write_slots=slots, context_slots=slots)])
    except Exception as error:  # noqa: BLE001  # that is the question
        log.warning("a forward to try the model failed: %s", error)
        return False
    return True
