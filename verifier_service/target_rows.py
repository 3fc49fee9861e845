"""From the target's logits to its tokens: which rows choose, by which rules and with which noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from saguaro.core.penalties import apply_rules, ruled_rows
from saguaro.core.sampling import RowSampling, race
from saguaro.engine.model_runner import Logits
from saguaro.types import SamplingParams, TokenIds
from verifier_service.scheduler import Row


class TargetRows:
    """Chooses the target's token of every row that has one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Rows at temperature 0 need no parameters, whatever their number.
        self._greedy = RowSampling.build([SamplingParams()], [0], device)

    def choose(self, rows: Sequence[Row], logits: Logits) -> list[int]:
        """The target's tokens, for each row of the batch `num_choosing` in order, whatever was drafted for them.

        Row i of a sequence stands on its tokens and the first i draft tokens.
        """
        choosing = [row for row in rows if row.num_choosing]
        if not choosing:
            return []
        ruled = ruled_rows((row.sequence.rules, row.num_choosing, partial(_stands_on, row)) for row in choosing)
        processed = apply_rules(_choosing_rows(rows, logits), ruled)
        return race(processed, self._sampling(choosing)).tolist()

    def _sampling(self, rows: Sequence[Row]) -> RowSampling:
        """Row i of a sequence predicts the token at position len(tokens) + i."""
        if all(row.sequence.sampling.temperature == 0.0 for row in rows):
            return self._greedy
        params = [row.sequence.sampling for row in rows for _ in range(row.num_choosing)]
        positions = [len(row.sequence.tokens) + i for row in rows for i in range(row.num_choosing)]
        return RowSampling.build(params, positions, self._device)


def _choosing_rows(rows: Sequence[Row], logits: Logits) -> Tensor:  # [sum of num_choosing, vocab]
    """Not copied unless rows of a prompt that is scored lie between."""
    if all(row.num_choosing == row.chunk.num_logits for row in rows):
        return logits.rows
    parts = [logits.of(index)[-row.num_choosing :] for index, row in enumerate(rows) if row.num_choosing]
    return torch.cat(parts)


def _stands_on(row: Row) -> list[TokenIds]:
    return [row.sequence.speculation[:i] for i in range(row.num_choosing)]
