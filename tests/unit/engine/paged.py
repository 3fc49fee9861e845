"""Small helpers that run token sequences through a ModelRunner, and the reference that they are compared with."""

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from saguaro.engine.block_manager import BlockTable
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.ragged_batch import Chunk

BLOCK_SIZE = 4


def make_runner(
    folder: Path, *, num_blocks: int = 256, block_size: int = BLOCK_SIZE, poison: bool = True
) -> ModelRunner:
    """A runner whose pool is full of NaN, so that whatever reads a slot nobody wrote is seen at once."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    runner = ModelRunner(model, num_blocks=num_blocks, block_size=block_size)
    if poison:
        for layer in runner.kv_pool.layers:
            layer.fill_(float("nan"))
    return runner


class Reference:
    """transformers' own attention on the same weights."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()

    @torch.inference_mode()
    def logits(self, token_ids: list[int]) -> Tensor:
        """[len(token_ids), vocab], one forward without a cache."""
        return self.model(torch.tensor([token_ids]), use_cache=False).logits[0]


class PagedSequence:
    """A sequence that is fed piece by piece."""

    def __init__(self, runner: ModelRunner) -> None:
        self.table = BlockTable(runner.block_manager)
        self.token_ids: list[int] = []

    def chunk(self, token_ids: list[int], num_logits: int | None = None) -> Chunk:
        """The next tokens as a causal chunk, with all their logits unless told."""
        start = len(self.token_ids)
        self.token_ids += token_ids
        self.table.reserve(len(self.token_ids))
        return Chunk.causal(token_ids, start, self.table, len(token_ids) if num_logits is None else num_logits)


def random_tokens(count: int, seed: int) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
