"""From the target's logits to outcomes: which rows choose, by which rules, with which noise, and what they accept.

Each row's logits are processed once, and one distribution decides: a race in coupled mode, or the draws of rejection
mode. One batch may hold sequences of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from saguaro.core.acceptance import accept
from saguaro.core.penalties import apply_rules, ruled_rows
from saguaro.core.proposal import Proposals
from saguaro.core.rejection import verify
from saguaro.core.row_groups import by_kind
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs, race
from saguaro.engine.grammar import TokenMasks, masks_for_runs
from saguaro.engine.model_runner import Logits
from saguaro.errors import InvalidRequest, SequenceFault
from saguaro.types import SamplingParams, TokenIds, VerificationOutcome
from verifier_service.scheduler import Row


class TargetRows:
    """Ends the round of every row that has one to end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Rows at temperature 0 need no parameters, whatever their number.
        self._greedy = RowSampling.build([SamplingParams()], [0], device)

    def outcomes(self, rows: Sequence[Row], logits: Logits) -> list[VerificationOutcome]:
        """How the verification of each row of the batch ended that chooses, in order.

        Logits row i of a sequence stands on its tokens and the first i draft tokens. Raises InvalidRequest where the
        parameters of one leave no token to choose, SequenceFault where its logits are not finite.
        """
        choosing = [row for row in rows if row.num_choosing]
        if not choosing:
            return []
        ruled = ruled_rows((row.sequence.rules, row.num_choosing, partial(_stands_on, row)) for row in choosing)
        processed = apply_rules(_choosing_rows(rows, logits), ruled, self._masks(choosing))
        num_rows = [row.num_choosing for row in choosing]
        is_drawn = [row.sequence.draws_drafts for row in choosing]
        return by_kind(choosing, processed, num_rows, is_drawn, self._verify, self._race)

    def _race(self, rows: Sequence[Row], processed: Tensor) -> list[VerificationOutcome]:
        """Coupled mode, and temperature 0 in any: the target's tokens do not depend on the drafts."""
        sampling = self._sampling(rows)
        winners = race(processed, sampling)
        best = processed.amax(-1) if sampling.any_random else processed.gather(1, winners.unsqueeze(1)).squeeze(1)
        outcomes = accept(winners.tolist(), [row.sequence.speculation for row in rows])
        _require_a_choice(rows, outcomes, best)
        return outcomes

    def _verify(self, rows: Sequence[Row], processed: Tensor) -> list[VerificationOutcome]:
        """Rejection mode."""
        sampling = self._sampling(rows)
        proposals = Proposals.of([row.sequence.proposal for row in rows], self._device)
        outcomes = verify(processed_log_probs(processed, sampling), sampling, proposals)
        _require_a_choice(rows, outcomes, processed.amax(-1))
        return outcomes

    def _masks(self, rows: Sequence[Row]) -> TokenMasks | None:
        masks = masks_for_runs([(row.sequence.constraint, row.sequence.speculation) for row in rows])
        return None if masks is None else masks.to(self._device)

    def _sampling(self, rows: Sequence[Row]) -> RowSampling:
        """Row i of a sequence predicts the token at position len(tokens) + i."""
        if all(row.sequence.sampling.temperature == 0.0 for row in rows):
            return self._greedy
        params = [row.sequence.sampling for row in rows for _ in range(row.num_choosing)]
        positions = [len(row.sequence.tokens) + i for row in rows for i in range(row.num_choosing)]
        return RowSampling.build(params, positions, self._device)


def _require_a_choice(rows: Sequence[Row], outcomes: Sequence[VerificationOutcome], best: Tensor) -> None:
    """`best` [rows]: the largest logit of each. Rows beyond the outcome chose nothing."""
    if bool(best.isfinite().all()):
        return
    largest: list[float] = best.tolist()
    start = 0
    for row, outcome in zip(rows, outcomes, strict=True):
        for offset, value in enumerate(largest[start : start + outcome.num_accepted + 1]):
            place = row.sequence.num_generated + offset
            if value == -math.inf:
                raise InvalidRequest(
                    "sampling",
                    f"no token is left to choose at output token {place}: min_tokens, stop_token_ids, logit_bias and "
                    "the constraint together exclude all of them; relax one of these",
                )
            if not math.isfinite(value):
                raise SequenceFault(f"the model's logits for output token {place} are not finite")
        start += row.num_choosing


def _choosing_rows(rows: Sequence[Row], logits: Logits) -> Tensor:  # [sum of num_choosing, vocab]
    """Not copied unless rows of a prompt that is scored lie between."""
    if all(row.num_choosing == row.chunk.num_logits for row in rows):
        return logits.rows
    parts = [logits.of(index)[-row.num_choosing :] for index, row in enumerate(rows) if row.num_choosing]
    return torch.cat(parts)


def _stands_on(row: Row) -> list[TokenIds]:
    return [row.sequence.speculation[:i] for i in range(row.num_choosing)]
