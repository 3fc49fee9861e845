"""Rejection mode: outcomes have the closed-form law, at every place, whatever p and q are.

Each chi-square test: a false alarm once in 10,000, see tests/unit/core/law.py; seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saguaro.core.proposal import Proposal, Proposals
from saguaro.core.rejection import verify
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from saguaro.types import SamplingParams, VerificationOutcome
from tests.unit.core.law import assert_follows
from tests.unit.core.rejection_rounds import (
    AS_IT_IS,
    PLAIN,
    ROUNDS,
    Drafting,
    Rounds,
    assert_outcomes_follow,
    law_of,
    outcome_law,
    rows_at,
    run_rounds,
    run_rounds_not_drawn,
    split,
)


def random_logits(*shape: int, seed: int, spread: float = 1.5) -> Tensor:
    return spread * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def target_laws(logits: Tensor) -> Tensor:
    return logits.double().softmax(-1)


def draft_laws(logits: Tensor, drafting: Drafting = AS_IT_IS) -> Tensor:
    return torch.stack([law_of(row, drafting) for row in logits])


TARGET, DRAFT = random_logits(3, 6, seed=0), random_logits(2, 6, seed=1)
LOW, HIGH = torch.tensor([0.0, 1.0, 2.0] + [-math.inf] * 3), torch.tensor([-math.inf] * 3 + [0.0, 1.0, 2.0])
MIDDLE = torch.tensor([-math.inf, 0.0, 1.0, 2.0, 0.5, -math.inf])


def test_the_closed_form_emits_the_target_s_law() -> None:
    # The oracle itself: whatever q is, the first token emitted has law p_0, and all cells together have mass 1.
    p, q = target_laws(TARGET), draft_laws(DRAFT)
    first = sum(table.flatten(1).sum(1) if table.ndim > 1 else table for table in outcome_law(p, q))
    torch.testing.assert_close(first, p[0])


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        pytest.param(TARGET, DRAFT, id="first, middle and last place"),
        pytest.param(random_logits(2, 40, seed=2), random_logits(1, 40, seed=3), id="K = 1, 40 tokens"),
        pytest.param(TARGET, TARGET[:2], id="p == q"),
        pytest.param(HIGH.repeat(3, 1), LOW.repeat(2, 1), id="disjoint"),
        pytest.param(TARGET, MIDDLE.repeat(2, 1), id="q zero where p is not"),
        pytest.param(MIDDLE.repeat(3, 1), DRAFT, id="p zero where q is not"),
        pytest.param(TARGET, DRAFT + torch.tensor([9.0, 0, 0, 0, 0, 0]), id="a sure draft that is wrong"),
    ],
)
def test_outcomes_follow_the_closed_law(target: Tensor, draft: Tensor) -> None:
    assert_outcomes_follow(run_rounds(target, draft), target_laws(target), draft_laws(draft))


@pytest.mark.parametrize("fan_out", [0, 1, 3])
@pytest.mark.parametrize("cached_scale", [1.0, 0.5, 0.0])
def test_outcomes_follow_the_closed_law_under_saguaro_sampling(cached_scale: float, fan_out: int) -> None:
    drafting = Drafting(fan_out, cached_scale)
    assert_outcomes_follow(run_rounds(TARGET, DRAFT, drafting), target_laws(TARGET), draft_laws(DRAFT, drafting))


@pytest.mark.parametrize("support", [1, 2, 4])
@pytest.mark.parametrize("cached_scale", [1.0, 0.5, 0.0])
def test_outcomes_follow_the_closed_law_where_the_draft_is_truncated(cached_scale: float, support: int) -> None:
    drafting = Drafting(fan_out=2, cached_scale=cached_scale, support=support)
    target, draft = random_logits(2, 12, seed=5), random_logits(1, 12, seed=6)
    assert_outcomes_follow(run_rounds(target, draft, drafting), target_laws(target), draft_laws(draft, drafting))


def test_outcomes_follow_the_closed_law_of_processed_logits() -> None:
    params = SamplingParams(temperature=0.7, top_k=4, seed=3)

    def processed(logits: Tensor) -> Tensor:
        return (logits / 0.7).masked_fill(logits < logits.topk(4).values[:, -1:], -math.inf)

    p, q = target_laws(processed(TARGET)), draft_laws(processed(DRAFT))
    assert_outcomes_follow(run_rounds(TARGET, DRAFT, params=params), p, q)


def test_p_equal_to_q_accepts_all_but_what_float16_rounds() -> None:
    # The refusal probability of a place is the distance of q from its rounding, under 2^-12; here all of 2e5 places.
    rounds = run_rounds(TARGET, TARGET[:2])
    assert (rounds.num_accepted == 2).double().mean() > 1 - 2 * 2.0**-11


def test_disjoint_laws_accept_nothing() -> None:
    assert run_rounds(HIGH.repeat(3, 1), LOW.repeat(2, 1)).num_accepted.max() == 0


@pytest.mark.parametrize("proposed", ["the likeliest", "the unlikeliest", "at random"])
def test_a_token_that_was_not_drawn_is_accepted_with_p_else_replaced_by_another(proposed: str) -> None:
    p = target_laws(TARGET)
    choices = {
        "the likeliest": p[:2].argmax(1).expand(ROUNDS, 2),
        "the unlikeliest": p[:2].argmin(1).expand(ROUNDS, 2),
        "at random": torch.randint(0, 6, (ROUNDS, 2), generator=torch.Generator().manual_seed(4)),
    }
    drafted = choices[proposed]
    rounds = run_rounds_not_drawn(TARGET, drafted)
    refused = rounds.num_accepted < 2
    replaced = drafted[refused, rounds.num_accepted[refused]]
    assert not (rounds.bonus[refused] == replaced).any()
    for tokens in torch.unique(drafted, dim=0):
        q = torch.nn.functional.one_hot(tokens, 6).double()
        same = (drafted == tokens).all(1)
        part = Rounds(drafted[same], rounds.num_accepted[same], rounds.bonus[same])
        # 36 parts where proposed at random: a false alarm once in 277.
        assert_outcomes_follow(part, p, q)


def test_without_draft_tokens_the_bonus_follows_p() -> None:
    rows = rows_at(torch.arange(ROUNDS))
    p = processed_log_probs(TARGET[:1], rows_at(torch.arange(1)))
    outcomes = verify(p.expand(ROUNDS, -1), rows, Proposals.of([Proposal.not_drawn(())] * ROUNDS))
    num_accepted, bonus = split(outcomes)
    assert num_accepted.max() == 0
    assert_follows(bonus.bincount(minlength=6).numpy(), target_laws(TARGET)[0].numpy())


def test_at_temperature_zero_a_token_is_accepted_iff_it_is_the_argmax() -> None:
    greedy = SamplingParams()
    best = TARGET.argmax(1).tolist()
    p = processed_log_probs(TARGET, rows_at(torch.arange(3), greedy))
    wrong = (best[0] + 1) % 6
    for tokens, outcome in [
        ((best[0], best[1]), VerificationOutcome(2, best[2])),
        ((best[0], (best[1] + 1) % 6), VerificationOutcome(1, best[1])),
        ((wrong, best[1]), VerificationOutcome(0, best[0])),
    ]:
        proposals = Proposals.of([Proposal.not_drawn(tokens)])
        assert verify(p, rows_at(torch.arange(3), greedy), proposals) == [outcome]


def test_a_refusal_without_residual_mass_draws_from_p() -> None:
    # p and q equal but for rounding: p(0) a little below q(0), nothing above q anywhere. Refused for this seed.
    log_probs = torch.tensor([[0.999, 0.0], [0.5, 0.5]]).log()
    seeds = range(20_000)
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in seeds for _ in range(2)]
    rows = RowSampling.build(params, [0, 1] * len(seeds))
    outcomes = verify(log_probs.repeat(len(seeds), 1), rows, Proposals.of([Proposal.not_drawn((0,))] * len(seeds)))
    refused = [outcome for outcome in outcomes if outcome.num_accepted == 0]
    assert refused
    assert {outcome.bonus_token for outcome in refused} == {0}


def test_sequences_of_a_batch_are_decided_each_alone() -> None:
    generator = torch.Generator().manual_seed(8)
    lengths = [0, 3, 1, 0, 4, 2]
    params = [SamplingParams(temperature=0.9, seed=seed) for seed in range(5)] + [SamplingParams()]
    logits = [random_logits(length + 1, 30, seed=length) for length in lengths]
    drafted = [tuple(torch.randint(0, 30, (length,), generator=generator).tolist()) for length in lengths]
    proposals = [Proposal.not_drawn(tokens) for tokens in drafted]
    sampling = [own for own, length in zip(params, lengths, strict=True) for _ in range(length + 1)]
    rows = RowSampling.build(sampling, range(len(sampling)))
    together = verify(processed_log_probs(torch.cat(logits), rows), rows, Proposals.of(proposals))
    start = 0
    for own, own_logits, proposal, outcome in zip(params, logits, proposals, together, strict=True):
        own_rows = RowSampling.build([own] * len(own_logits), range(start, start + len(own_logits)))
        assert verify(processed_log_probs(own_logits, own_rows), own_rows, Proposals.of([proposal])) == [outcome]
        start += len(own_logits)


def test_an_empty_batch_has_no_outcomes() -> None:
    assert verify(torch.empty(0, 6), RowSampling.build([], []), Proposals.of([])) == []


def test_rows_that_do_not_match_the_proposals_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 rows of log_probs"):
        verify(torch.zeros(2, 6), rows_at(torch.arange(2), PLAIN), Proposals.of([Proposal.not_drawn((1, 2))]))
