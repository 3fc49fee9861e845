"""What the draft is worth as it is served: both models as the services load them, over their whole laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.evaluation import coupled_acceptance
from distill.shards import Sample
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner

OnText = Callable[[int], None]  # texts read


@dataclass(frozen=True, slots=True)
class ServedFigures:
    """Shares from 0 to 1 over held-out texts, the last two at temperature 1."""

    greedy_agreement: float
    overlap: float  # sum of min(p, q): acceptance in rejection mode
    coupled_acceptance: float


def served_figures(target: Runner, draft: Runner, samples: Sequence[Sample], on_text: OnText) -> ServedFigures:
    """`samples` must hold greedy texts and texts at temperature 1; each runner's pool has a place for the longest."""
    agreed, overlaps, coupled = [], [], []
    for index, sample in enumerate(samples):
        p, q = (_logits(runner, sample) for runner in (target, draft))
        if sample.temperature == 0:
            agreed.append((p.argmax(-1) == q.argmax(-1)).float())
        else:
            p, q = p.softmax(-1), q.softmax(-1)
            overlaps.append(torch.minimum(p, q).sum(-1))
            coupled.append(coupled_acceptance(p, q))
        on_text(index + 1)
    return ServedFigures(*(float(torch.cat(figures).mean()) for figures in (agreed, overlaps, coupled)))


def _logits(runner: Runner, sample: Sample) -> Tensor:  # [n, vocab]
    """At the places where the target wrote."""
    token_ids = sample.token_ids[:-1].tolist()
    table = BlockTable(runner.block_manager)
    table.reserve(len(token_ids))
    try:
        return runner.forward([Chunk.causal(token_ids, 0, table, num_logits=sample.num_written)]).rows
    finally:
        table.free()
