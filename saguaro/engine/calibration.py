"""A few forwards at start, so that the first plans rest on this machine's own times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from saguaro.core.forward_time import ForwardTime
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner

_CONTEXT_TOKENS = 32
_REPEATS = 2


def calibrate(runner: Runner, forward: ForwardTime, rows: Sequence[int]) -> None:
    """Time forwards of so many rows after a short context; the faster of two counts."""
    for num_rows in rows:
        if _CONTEXT_TOKENS + num_rows > runner.context_limit:
            return
        with BlockTable(runner.block_manager) as table:
            table.reserve(_CONTEXT_TOKENS + num_rows)
            runner.forward([Chunk.causal([0] * _CONTEXT_TOKENS, 0, table, num_logits=1)])
            chunk = Chunk.causal([0] * num_rows, _CONTEXT_TOKENS, table, num_logits=num_rows)
            forward.observe(num_rows, min(_time_ns(runner, chunk) for _ in range(_REPEATS)))


def _time_ns(runner: Runner, chunk: Chunk) -> int:
    started_ns = time.perf_counter_ns()
    runner.forward([chunk])
    return time.perf_counter_ns() - started_ns
