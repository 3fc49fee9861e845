"""The parameters of a batch's rows, laid out as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.types import SamplingParams

# Below this a temperature is 0: the law is the argmax but for ties, and logits over temperature would leave float32.
LEAST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class RowSampling:
    """Parameters of each row of a batch as tensors [rows] on one device, and what holds for the batch as a whole.

    Rows at temperature 0 are kept with temperature 1 and no truncation; `is_random` tells them. The plain values say
    what can be skipped without asking the device.
    """

    is_random: Tensor  # bool: temperature > 0
    temperature: Tensor  # float32
    top_p: Tensor  # float32, 1 keeps all
    top_k: Tensor  # int64, 0 keeps all
    min_p: Tensor  # float32, 0 keeps all
    seed: Tensor  # int64, the bits of the uint64
    choice: Tensor  # int64
    position: Tensor  # int64, absolute index in the sequence of the token to be chosen
    any_random: bool
    all_random: bool
    any_top_p: bool
    max_top_k: int
    any_min_p: bool

    @classmethod
    def build(
        cls, params: Sequence[SamplingParams], positions: Sequence[int], device: torch.device | str = "cpu"
    ) -> RowSampling:
        """One element of `params` and `positions` a row, else ValueError. OverflowError for a seed outside uint64."""
        if len(params) != len(positions):
            raise ValueError(f"{len(params)} parameters for {len(positions)} positions")
        is_random = [row.temperature >= LEAST_TEMPERATURE for row in params]
        temperature = [row.temperature if random else 1.0 for row, random in zip(params, is_random, strict=True)]
        top_p = [row.top_p if random else 1.0 for row, random in zip(params, is_random, strict=True)]
        top_k = [row.top_k if random else 0 for row, random in zip(params, is_random, strict=True)]
        min_p = [row.min_p if random else 0.0 for row, random in zip(params, is_random, strict=True)]
        seeds = [int.from_bytes(row.seed.to_bytes(8, "little"), "little", signed=True) for row in params]
        return cls(
            is_random=torch.tensor(is_random, dtype=torch.bool, device=device),
            temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
            top_p=torch.tensor(top_p, dtype=torch.float32, device=device),
            top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
            min_p=torch.tensor(min_p, dtype=torch.float32, device=device),
            seed=torch.tensor(seeds, dtype=torch.int64, device=device),
            choice=torch.tensor([row.choice for row in params], dtype=torch.int64, device=device),
            position=torch.tensor(positions, dtype=torch.int64, device=device),
            any_random=any(is_random),
            all_random=all(is_random),
            any_top_p=any(value < 1 for value in top_p),
            max_top_k=max(top_k, default=0),
            any_min_p=any(value > 0 for value in min_p),
        )
