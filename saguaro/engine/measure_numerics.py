"""How often the shape of a forward decides a token: `python -m saguaro.engine.measure_numerics`. For docs/exactness.md.

The target generates texts from the prompts below (temperature 1, no two alike), then is led through these texts again
(teacher-forced) in forwards of other shapes, each with KV of its own making:

    SxQ   S sequences in one forward, Q consecutive tokens of each: 1x8 is the verification of 7 draft tokens, alone,
          8x8 the same of 8 sequences, 8x1 plain decoding of 8
    whole each text in one forward, as a prompt

1x1, plain decoding alone, would take 20,000 forwards. It is run on the KV of 1x8 where it can matter: wherever 1x8's
two best logits are closer than a threshold, and at every 20th token. The threshold is stated beside the largest change
of that gap which any of these showed; a token further away than that cannot change places. 8x1, 8x8 and whole lead
through the first eight texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from transformers import AutoTokenizer

from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import race
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import SamplingParams

_PROMPTS = (
    "The history of bread begins",
    "def merge_sort(items):",
    "Dear Anna, I have to tell you",
    "To prove that the square root of two is irrational,",
    "The three most common causes of a car not starting are",
    "Once upon a time, in a desert full of saguaros,",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "SELECT name, price FROM products WHERE",
)
_LONGEST_PROMPT = 96  # tokens; texts grow until the shortest is long enough
_SAMPLE_EVERY = 20
_NUM_TEXTS_OF_OTHER_SHAPES = 8
_BLOCK_SIZE = 16
_GAP_THRESHOLD = {"float32": 0.02, "bfloat16": 0.5}  # far beyond what rounding moves in that type


@dataclass(frozen=True, slots=True)
class Readings:
    """What a shape said at each token: its best two tokens and their logits."""

    ids: Tensor  # [n, 2] int64, best first
    logits: Tensor  # [n, 2] float32

    @staticmethod
    def of(rows: Tensor) -> Readings:
        """Of logits [n, vocab]. Of equal logits the best is the lowest id, as where tokens are chosen."""
        best = rows.argmax(dim=-1, keepdim=True)
        top = rows.topk(2, dim=-1).indices
        second = torch.where(top[:, :1] == best, top[:, 1:], top[:, :1])
        ids = torch.cat((best, second), dim=-1)
        return Readings(ids, rows.gather(1, ids))

    @staticmethod
    def joined(parts: Sequence[Readings]) -> Readings:
        """One after another."""
        return Readings(torch.cat([part.ids for part in parts]), torch.cat([part.logits for part in parts]))

    def at(self, chosen: Tensor) -> Readings:
        """Those positions where `chosen` [n] is true."""
        return Readings(self.ids[chosen], self.logits[chosen])

    @property
    def gaps(self) -> Tensor:
        """[n] Best logit minus second best."""
        return self.logits[:, 0] - self.logits[:, 1]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two shapes, position by position."""

    num_positions: int
    gaps_where_different: tuple[float, ...]  # the smaller of the two gaps at each position with another argmax
    largest_change: float  # of the gap, where both have the same best two tokens
    share_identical: float  # positions whose best two tokens and logits are the same to the bit

    @staticmethod
    def of(one: Readings, other: Readings) -> Comparison:
        """Both over the same positions."""
        differs = one.ids[:, 0] != other.ids[:, 0]
        same_bits = (one.ids == other.ids).all(dim=1) & (one.logits == other.logits).all(dim=1)
        changes = (one.gaps - other.gaps).abs()[(one.ids == other.ids).all(dim=1)]
        gaps = torch.minimum(one.gaps, other.gaps)[differs]
        return Comparison(
            len(differs), tuple(sorted(gaps.tolist())), float(changes.max()), float(same_bits.float().mean())
        )

    def __str__(self) -> str:
        count = len(self.gaps_where_different)
        gaps = f", gaps there up to {self.gaps_where_different[-1]:.1e}" if count else ""
        return (
            f"{count} of {self.num_positions} argmax differ{gaps}; the gap moves by up to {self.largest_change:.1e}; "
            f"{self.share_identical:.1%} the same to the bit"
        )


def generate(runner: ModelRunner, prompts: Sequence[list[int]], num_tokens: int, progress: Progress) -> list[list[int]]:
    """Prompts with as many tokens after each; at temperature 1, each with a seed of its own."""
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in range(len(prompts))]
    texts = [list(prompt) for prompt in prompts]
    with ExitStack() as stack:
        tables = [stack.enter_context(BlockTable(runner.block_manager)) for _ in texts]
        done = [0] * len(texts)
        for _ in progress.track(range(num_tokens), description="texts"):
            chunks = []
            for table, text, start in zip(tables, texts, done, strict=True):
                table.reserve(len(text))
                chunks.append(Chunk.causal(text[start:], start, table, num_logits=1))
            done = [len(text) for text in texts]
            rows = runner.forward(chunks).rows
            tokens = race(rows, RowSampling.build(params, done, rows.device)).tolist()
            for text, token in zip(texts, tokens, strict=True):
                text.append(token)
    return texts


def led(runner: ModelRunner, texts: Sequence[list[int]], sequences: int, queries: int) -> Iterator[list[Readings]]:
    """Leads the model through `texts`, of one length, in forwards of `sequences` x `queries`.

    Yields, per forward, the readings of each of its texts: all texts' first tokens, then the next, group by group.
    """
    for first in range(0, len(texts), sequences):
        group = texts[first : first + sequences]
        with ExitStack() as stack:
            tables = [stack.enter_context(BlockTable(runner.block_manager)) for _ in group]
            for table, text in zip(tables, group, strict=True):
                table.reserve(len(text))
            for start in range(0, len(group[0]), queries):
                chunks = [
                    Chunk.causal(piece := text[start : start + queries], start, table, num_logits=len(piece))
                    for table, text in zip(tables, group, strict=True)
                ]
                logits = runner.forward(chunks)
                yield [Readings.of(logits.of(index)) for index in range(len(group))]


def readings_of(runner: ModelRunner, texts: Sequence[list[int]], shape: str, progress: Progress) -> Readings:
    """All texts in one shape, text after text."""
    length = len(texts[0])
    sequences, queries = (1, length) if shape == "whole" else map(int, shape.split("x"))
    num_groups, num_steps = -(-len(texts) // sequences), -(-length // queries)
    forwards = led(runner, texts, sequences, queries)
    steps = list(progress.track(forwards, total=num_groups * num_steps, description=shape))
    groups = [steps[index * num_steps : (index + 1) * num_steps] for index in range(num_groups)]
    return Readings.joined([step[text] for group in groups for text in range(len(group[0])) for step in group])


def eight_and_one(
    runner: ModelRunner, texts: Sequence[list[int]], threshold: float, progress: Progress
) -> tuple[Readings, Tensor, Readings]:
    """1x8 everywhere; which positions [n] bool were run as 1x1 too, on 1x8's KV; 1x1 at those."""
    eights: list[Readings] = []
    ones: list[Readings] = []
    chosen: list[Tensor] = []
    for text in progress.track(texts, description="1x8, 1x1"):
        with BlockTable(runner.block_manager) as table, BlockTable(runner.block_manager) as spare:
            table.reserve(len(text))
            spare.reserve(1)
            for start in range(0, len(text), 8):
                piece = text[start : start + 8]
                eight = Readings.of(runner.forward([Chunk.causal(piece, start, table, num_logits=len(piece))]).rows)
                positions = torch.arange(start, start + len(piece))
                chosen.append((eight.gaps < threshold) | (positions % _SAMPLE_EVERY == 0))
                for position in positions[chosen[-1]].tolist():
                    slot = table.slots(position, position + 1)
                    runner.copy_kv(slot, spare.slots(0, 1))
                    one = Chunk.causal(text[position : position + 1], position, table, num_logits=1)
                    ones.append(Readings.of(runner.forward([one]).rows))
                    runner.copy_kv(spare.slots(0, 1), slot)
                eights.append(eight)
    return Readings.joined(eights), torch.cat(chosen), Readings.joined(ones)


def measure(runner: ModelRunner, texts: Sequence[list[int]], threshold: float, progress: Progress) -> Iterator[str]:
    """Lines of the report, as they come."""
    eight, chosen, one = eight_and_one(runner, texts, threshold, progress)
    num_near = int((eight.gaps < threshold).sum())
    yield f"1x8 against 1x1 ({num_near} gaps below {threshold}): {Comparison.of(eight.at(chosen), one)}"
    some = texts[:_NUM_TEXTS_OF_OTHER_SHAPES]
    of_some = eight.at(torch.arange(len(eight.ids)) < len(some) * len(some[0]))
    for shape in ("8x1", "8x8", "whole"):
        yield f"1x8 against {shape}: {Comparison.of(of_some, readings_of(runner, some, shape, progress))}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line a comparison, for each type and numerics."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    console = Console()
    with Progress(console=Console(stderr=True)) as progress:
        texts: list[list[int]] = []
        for kind in options.kinds:
            dtype, _, numerics = kind.partition("/")
            loaded = load_model(options.model, dtype=dtype, device="cpu", linear="auto")
            num_blocks = (options.texts + 1) * -(-(options.tokens + _LONGEST_PROMPT) // _BLOCK_SIZE)
            runner = ModelRunner(loaded.model, num_blocks=num_blocks, block_size=_BLOCK_SIZE, numerics=numerics)
            texts = texts or _texts(runner, loaded.folder, options, progress)
            console.print(
                f"{kind}, {len(texts)} texts of {options.tokens} tokens, {options.threads} threads", highlight=False
            )
            for line in measure(runner, texts, _GAP_THRESHOLD[dtype], progress):
                console.print(f"  {line}", highlight=False, soft_wrap=True)


def _texts(runner: ModelRunner, folder: Path, options: argparse.Namespace, progress: Progress) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    prompts = [tokenizer.encode(_PROMPTS[index % len(_PROMPTS)]) for index in range(options.texts)]
    num_tokens = options.tokens - min(map(len, prompts))
    return [text[: options.tokens] for text in generate(runner, prompts, num_tokens, progress)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m saguaro.engine.measure_numerics", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", default="demo-target", help="demo-target, a folder, or a hub id")
    parser.add_argument("--kinds", nargs="+", default=["float32/fast", "bfloat16/fast", "float32/fixed-shape"],
                        help="dtype/numerics, each measured in turn over the texts of the first")  # fmt: skip
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=320, help="tokens of a text, its prompt included")
    parser.add_argument("--threads", type=int, default=1, help="threads of one forward")
    return parser


if __name__ == "__main__":
    main()
