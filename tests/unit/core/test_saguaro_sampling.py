"""What Saguaro sampling buys and what it costs: residual mass on the prepared tokens, fewer acceptances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saguaro.core.draft_law import guesses
from saguaro.core.fan_out import candidates_for
from tests.unit.core.rejection_rounds import ROUNDS, Drafting, law_of, run_rounds

VOCAB, FAN_OUT = 12, 2
DRAFT = torch.linspace(2.5, -2.5, VOCAB)  # tokens in the order of the draft's ranking
TARGET = DRAFT + 0.3 * torch.randn(VOCAB, generator=torch.Generator().manual_seed(12))
SCALES = (1.0, 0.8, 0.5, 0.2, 0.0)
DEVIATION = 0.5 / ROUNDS**0.5  # of a measured rate, at most


def prepared(drafted: int) -> set[int]:
    """The outcomes in the cache for "refused at the first place"."""
    return set(candidates_for(guesses(DRAFT.unsqueeze(0), FAN_OUT + 1).token_ids[0].tolist(), drafted, FAN_OUT))


def expected(cached_scale: float) -> tuple[float, float]:
    """Acceptance, and hit rate after a refusal, by closed formulas."""
    p, q = TARGET.double().softmax(0), law_of(DRAFT, Drafting(FAN_OUT, cached_scale))
    refused = (q - p).clamp(min=0)  # of each drafted token
    residual = (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()
    hits = sum(float(refused[x]) * sum(float(residual[t]) for t in prepared(x)) for x in range(VOCAB))
    return float(1 - refused.sum()), hits / float(refused.sum())


def measured(cached_scale: float) -> tuple[float, float, int]:
    """Acceptance, hit rate after a refusal, and the number of refusals."""
    rounds = run_rounds(
        torch.stack((TARGET, TARGET)), DRAFT.unsqueeze(0), Drafting(fan_out=FAN_OUT, cached_scale=cached_scale)
    )
    refused = rounds.num_accepted == 0
    is_prepared = torch.tensor([[token in prepared(x) for token in range(VOCAB)] for x in range(VOCAB)])
    hits: Tensor = is_prepared[rounds.drafted[refused, 0], rounds.bonus[refused]]
    return 1 - float(refused.double().mean()), float(hits.double().mean()), int(refused.sum())


@pytest.mark.parametrize("cached_scale", SCALES)
def test_acceptance_and_hits_are_those_of_the_closed_form(cached_scale: float) -> None:
    # Each within 5 deviations: a false alarm under 6e-7.
    acceptance, hit_rate = expected(cached_scale)
    measured_acceptance, measured_hit_rate, num_refused = measured(cached_scale)
    assert abs(measured_acceptance - acceptance) < 5 * DEVIATION
    assert abs(measured_hit_rate - hit_rate) < 5 * 0.5 / num_refused**0.5


def test_a_smaller_c_hits_more_and_accepts_less() -> None:
    acceptances, hit_rates = zip(*(expected(scale) for scale in SCALES), strict=True)
    print("C, acceptance, hits after a refusal:", *zip(SCALES, acceptances, hit_rates, strict=True), sep="\n")
    assert list(acceptances) == sorted(acceptances, reverse=True)
    assert list(hit_rates) == sorted(hit_rates)
    assert hit_rates[-1] > hit_rates[0] + 0.3
