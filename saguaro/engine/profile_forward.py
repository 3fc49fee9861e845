"""How long a forward of a model takes here, by rows: `python -m saguaro.engine.profile_forward --model demo-draft`.

One sequence with a context of 300 tokens; each forward runs that many new rows after it and wants all their logits, as
verification and tree steps do. Several kinds of linear layers are measured in turn, row count by row count, so that a
machine that drifts hurts all alike.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch

from saguaro.config.services import Linear
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.fast_model import Role
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk

CONTEXT_TOKENS = 300
_BLOCK_SIZE = 16
_LINEARS: tuple[Linear, ...] = ("auto", "stock", "packed", "int8")


def forward_at(runner: ModelRunner, rows: int, context_tokens: int = CONTEXT_TOKENS) -> Callable[[], object]:
    """A forward of `rows` tokens after a context of `context_tokens`, ready to be called again and again."""
    table = BlockTable(runner.block_manager)
    table.reserve(context_tokens + rows)
    generator = torch.Generator().manual_seed(rows)
    token_ids = torch.randint(0, runner.vocab_size, (context_tokens + rows,), generator=generator).tolist()
    runner.forward([Chunk.causal(token_ids[:context_tokens], 0, table, num_logits=0)])
    chunk = Chunk.causal(token_ids[context_tokens:], context_tokens, table, num_logits=rows)
    return lambda: runner.forward([chunk])


def median_ms(
    forwards: Sequence[Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median milliseconds of each, measured in turn; the first call of each is not counted."""
    times: list[list[float]] = [[] for _ in forwards]
    for turn in range(repeats + 1):
        for forward, taken in zip(forwards, times, strict=True):
            started = clock()
            forward()
            if turn:
                taken.append((clock() - started) * 1e3)
    return [statistics.median(taken) for taken in times]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table: a line a row count, a column a kind of linear layers."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    role: Role = "draft" if options.embeddings_from or "int8" in options.linear else "target"
    runners = [_runner(options.model, linear, role, options.embeddings_from) for linear in options.linear]
    out = sys.stdout.write
    out(f"{options.model}, {options.threads} threads, context {CONTEXT_TOKENS}, ms of a forward, median\n")
    out("rows" + "".join(f"{linear:>10}" for linear in options.linear) + "\n")
    for rows in options.rows:
        times = median_ms([forward_at(runner, rows) for runner in runners], options.repeats, clock)
        out(f"{rows:4}" + "".join(f"{ms:10.1f}" for ms in times) + "\n")
        sys.stdout.flush()


def _runner(model: str, linear: Linear, role: Role, embeddings_from: str | None) -> ModelRunner:
    loaded = load_model(model, dtype="float32", device="cpu", embeddings_from=embeddings_from, linear=linear, role=role)
    return ModelRunner(loaded.model, num_blocks=512, block_size=_BLOCK_SIZE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m saguaro.engine.profile_forward", description=__doc__)
    parser.add_argument("--model", default="demo-target", help="demo-target, demo-draft, a folder, or a hub id")
    parser.add_argument("--embeddings-from", help="target of a draft that shares embeddings; makes the model a draft")
    parser.add_argument("--linear", nargs="+", choices=_LINEARS, default=["auto"], help="kinds to compare")
    parser.add_argument("--threads", type=int, default=1, help="threads of one forward")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 5, 8, 12, 16, 24], help="rows of a forward")
    parser.add_argument("--repeats", type=int, default=9, help="forwards of each kind and row count")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of the thread instead of wall time")
    return parser


if __name__ == "__main__":
    main()
