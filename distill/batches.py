"""Samples side by side: texts of like length in one rectangle, in a fresh order every epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.loss import PartialLaws
from distill.shards import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Texts without their last token, and what the target says at R of their places.

    Padding is behind the ends, where no causal model looks, so there is no mask.
    """

    token_ids: Tensor  # [S, L] int64
    rows: Tensor  # [R] int64, into [S * L]
    laws: PartialLaws  # [R]

    @staticmethod
    def of(samples: Sequence[Sample], column_of: Tensor) -> Batch:
        """`column_of` as in `PartialLaws.of`."""
        longest = max(len(sample.token_ids) for sample in samples) - 1
        token_ids = torch.zeros((len(samples), longest), dtype=torch.int64)
        rows = []
        for index, sample in enumerate(samples):
            end, count = len(sample.token_ids) - 1, sample.num_written
            token_ids[index, :end] = sample.token_ids[:-1]
            rows.append(torch.arange(end - count, end) + index * longest)
        top_ids = torch.cat([sample.top_ids for sample in samples])
        top_log_probs = torch.cat([sample.top_log_probs for sample in samples])
        return Batch(token_ids, torch.cat(rows), PartialLaws.of(top_ids, top_log_probs, column_of))


def grouped(samples: Sequence[Sample], batch_tokens: int, rng: random.Random) -> Iterator[list[Sample]]:
    """One epoch: every sample once, in groups of at most `batch_tokens` tokens (at least one sample)."""
    shuffled = rng.sample(samples, len(samples))
    # Like lengths side by side, but not always the same neighbours.
    shuffled.sort(key=lambda sample: len(sample.token_ids) + rng.uniform(0, 16))
    groups: list[list[Sample]] = []
    group: list[Sample] = []
    longest = 0
    for sample in shuffled:
        longest = max(longest, len(sample.token_ids) - 1)
        if group and longest * (len(group) + 1) > batch_tokens:
            groups.append(group)
            group, longest = [], len(sample.token_ids) - 1
        group.append(sample)
    if group:
        groups.append(group)
    rng.shuffle(groups)
    yield from groups
