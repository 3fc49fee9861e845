"""Rounds of rejection mode by the code under test, and their laws by closed formulas of its own.

The oracle shares nothing with the code: laws in float64 by sorting, outcome probabilities by outer products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.draft_law import SUPPORT, SparseDistributions, draft
from saguaro.core.proposal import Proposals
from saguaro.core.rejection import verify
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from saguaro.types import SamplingParams, VerificationOutcome
from tests.unit.core.law import assert_follows

ROUNDS = 100_000
PLAIN = SamplingParams(temperature=1.0, seed=2**63 + 11, choice=2)


@dataclass(frozen=True)
class Drafting:
    """How the draft makes its law: F, C and M."""

    fan_out: int = 0
    cached_scale: float = 1.0
    support: int = SUPPORT


AS_IT_IS = Drafting()


def rows_at(positions: Tensor, params: SamplingParams = PLAIN) -> RowSampling:
    """Rows that differ in their position only."""
    one = RowSampling.build([params], [0])
    shared = {
        field.name: getattr(one, field.name).expand(len(positions))
        for field in dataclasses.fields(one)
        if isinstance(getattr(one, field.name), Tensor)
    }
    return dataclasses.replace(one, **shared | {"position": positions})


def law_of(logits: Tensor, drafting: Drafting = AS_IT_IS) -> Tensor:  # [vocab] -> [vocab] float64
    """q by definition: softmax, Saguaro scaling, truncation, float16, normalised."""
    q = logits.double().softmax(0)
    order = q.argsort(descending=True)
    if drafting.fan_out and drafting.cached_scale < 1:
        scaled = q.clone()
        scaled[order[: drafting.fan_out + 1]] *= drafting.cached_scale
        q = scaled if scaled.sum() > 0 else q
    kept = q.argsort(descending=True)[: drafting.support]
    q = torch.zeros_like(q).scatter(0, kept, q[kept])
    q = (q / q.sum()).half().double()
    return q / q.sum()


def outcome_law(p: Tensor, q: Tensor) -> list[Tensor]:  # [K + 1, vocab], [K, vocab] -> for each k [vocab] * (k + 1)
    """P(x_1 .. x_k accepted, then t), k = 0 .. K, over all tokens."""
    tables, reached = [], torch.ones((), dtype=torch.float64)
    for p_k, q_k in zip(p, q, strict=False):
        tables.append(reached.unsqueeze(-1) * (p_k - q_k).clamp(min=0))
        reached = reached.unsqueeze(-1) * torch.minimum(p_k, q_k)
    return [*tables, reached.unsqueeze(-1) * p[len(q)]]


@dataclass(frozen=True)
class Rounds:
    """Many rounds of one sequence each."""

    drafted: Tensor  # [rounds, K]
    num_accepted: Tensor  # [rounds]
    bonus: Tensor  # [rounds]

    def counts(self, vocab: int) -> Tensor:  # [cells], in the order of outcome_law's tables
        """How often each (accepted tokens, bonus) came."""
        cells, offset = torch.zeros_like(self.bonus), 0
        for k in range(self.drafted.shape[1] + 1):
            index = torch.zeros_like(self.bonus)
            for token in self.drafted.T[:k]:
                index = index * vocab + token
            cells = torch.where(self.num_accepted == k, offset + index * vocab + self.bonus, cells)
            offset += vocab ** (k + 1)
        return cells.bincount(minlength=offset)


def split(outcomes: Sequence[VerificationOutcome]) -> tuple[Tensor, Tensor]:
    """num_accepted [rounds] and bonus [rounds]."""
    return (
        torch.tensor([outcome.num_accepted for outcome in outcomes]),
        torch.tensor([outcome.bonus_token for outcome in outcomes]),
    )


def run_rounds(
    target: Tensor,  # [K + 1, vocab] logits of each place
    drafts: Tensor,  # [K, vocab] logits of each place
    drafting: Drafting = AS_IT_IS,
    params: SamplingParams = PLAIN,
    num_rounds: int = ROUNDS,
) -> Rounds:
    """Rounds at positions that follow each other, so that no noise is used twice."""
    lookahead = len(drafts)
    positions = torch.arange(num_rounds * (lookahead + 1)).view(num_rounds, lookahead + 1)
    drawn = [
        draft(
            logits.expand(num_rounds, -1),
            rows_at(positions[:, place], params),
            [drafting.fan_out] * num_rounds,
            drafting.cached_scale,
            drafting.support,
        )
        for place, logits in enumerate(drafts)
    ]
    drafted = torch.stack([each.token_ids for each in drawn], dim=1)
    return Rounds(drafted, *split(_verify(target, drafted, [each.laws for each in drawn], positions, params)))


def run_rounds_not_drawn(target: Tensor, drafted: Tensor, params: SamplingParams = PLAIN) -> Rounds:
    """Rounds with the given tokens, [rounds, K], whose laws are point masses."""
    positions = torch.arange(drafted.shape[0] * (drafted.shape[1] + 1)).view(drafted.shape[0], -1)
    laws = [point_masses(token_ids) for token_ids in drafted.T]
    return Rounds(drafted, *split(_verify(target, drafted, laws, positions, params)))


def point_masses(token_ids: Tensor) -> SparseDistributions:
    """Of each token of [rows]."""
    return SparseDistributions(token_ids.unsqueeze(1), torch.ones(len(token_ids), 1, dtype=torch.float16))


def _verify(
    target: Tensor, drafted: Tensor, laws: list[SparseDistributions], positions: Tensor, params: SamplingParams
) -> list[VerificationOutcome]:
    num_rounds, lookahead = drafted.shape
    proposals = Proposals(
        drafted.flatten(),
        torch.full((num_rounds,), lookahead),
        SparseDistributions(
            torch.stack([law.token_ids for law in laws], dim=1).flatten(0, 1),
            torch.stack([law.probs for law in laws], dim=1).flatten(0, 1),
        ),
    )
    p = processed_log_probs(target, rows_at(torch.arange(lookahead + 1), params))
    return verify(p.repeat(num_rounds, 1), rows_at(positions.flatten(), params), proposals)


def assert_outcomes_follow(rounds: Rounds, p: Tensor, q: Tensor) -> None:
    """The rounds' outcomes, accepted tokens included, have the closed law of p [K + 1, vocab] and q [K, vocab]."""
    expected = torch.cat([table.flatten() for table in outcome_law(p, q)])
    assert_follows(rounds.counts(p.shape[1]).numpy(), expected.numpy())
