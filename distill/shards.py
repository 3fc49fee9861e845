"""What the target wrote, on disk: samples in shards, each a file that appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from saguaro.errors import ConfigurationError

TOP_K = 24


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A text of the target: a prompt, and n tokens with the law that each was drawn from, before temperature."""

    token_ids: Tensor  # [prompt + n] int32
    top_ids: Tensor  # [n, k] int32, likeliest first
    top_log_probs: Tensor  # [n, k] float16
    temperature: float  # that it was written at

    @property
    def num_written(self) -> int:
        """n."""
        return len(self.top_ids)


class ShardFolder:
    """The shards of one folder, in the order of their numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._files())

    @property
    def num_written(self) -> int:
        """Tokens that the target wrote, all shards together; reads none of them."""
        return sum(int(file.stem.split("-")[2]) for file in self._files())

    def append(self, samples: Sequence[Sample]) -> None:
        """One shard more. A process killed meanwhile leaves a file that no reader looks at."""
        count = sum(sample.num_written for sample in samples)
        name = f"shard-{len(self):05}-{count}.safetensors"
        work = self._folder / f".{name}.partial"
        save_file(
            {
                "token_ids": torch.cat([sample.token_ids for sample in samples]),
                "lengths": torch.tensor([len(sample.token_ids) for sample in samples]),
                "num_written": torch.tensor([sample.num_written for sample in samples]),
                "temperatures": torch.tensor([sample.temperature for sample in samples]),
                "top_ids": torch.cat([sample.top_ids for sample in samples]),
                "top_log_probs": torch.cat([sample.top_log_probs for sample in samples]),
            },
            work,
        )
        with work.open("rb") as file:
            os.fsync(file.fileno())
        work.rename(self._folder / name)

    def samples(self) -> Iterator[Sample]:
        """All, shard after shard. Raises ConfigurationError for a damaged shard."""
        for file in self._files():
            try:
                shard = load_file(file)
            except (OSError, SafetensorError) as error:
                raise ConfigurationError(f"{file} is damaged: {error}; delete it and --resume") from error
            lengths, counts = shard["lengths"].tolist(), shard["num_written"].tolist()
            for token_ids, top_ids, top_log_probs, temperature in zip(
                torch.split(shard["token_ids"], lengths),
                torch.split(shard["top_ids"], counts),
                torch.split(shard["top_log_probs"], counts),
                shard["temperatures"].tolist(),
                strict=True,
            ):
                yield Sample(token_ids, top_ids, top_log_probs, temperature)

    def token_counts(self, vocab_size: int) -> Tensor:  # [vocab] float64
        """How often the target wrote each token, and, a hundredth of that each, held it among its likeliest."""
        counts = np.zeros(vocab_size)
        for sample in self.samples():
            counts += np.bincount(sample.token_ids[-sample.num_written :].numpy(), minlength=vocab_size)
            counts += np.bincount(sample.top_ids.flatten().numpy(), minlength=vocab_size) / 100
        return torch.from_numpy(counts)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("shard-*.safetensors"))
