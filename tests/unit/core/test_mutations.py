"""The law tests can fail: each breaks the code in one way that would go unnoticed, and a law check notices.

Every check passes on the code as it is (that is what `unbroken` below and the law tests say) and must fail when broken.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from saguaro.core import draft_law, rejection, sampling
from saguaro.core.draft_law import SparseDistributions
from saguaro.core.draws import uniform
from saguaro.core.noise import NoiseDomain, gumbel
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs, race
from saguaro.types import SamplingParams
from tests.unit.core.law import assert_follows
from tests.unit.core.rejection_rounds import (
    ROUNDS,
    Drafting,
    assert_outcomes_follow,
    law_of,
    rows_at,
    run_rounds,
    run_rounds_not_drawn,
)

VOCAB = 8
GENERATOR = torch.Generator().manual_seed(3)
TARGET, DRAFT = torch.randn(2, VOCAB, generator=GENERATOR), torch.randn(1, VOCAB, generator=GENERATOR)
DRAFTING = Drafting(fan_out=1, cached_scale=0.5, support=5)

row_sums = sampling._row_sums
honest_draw = SparseDistributions.draw


def drawn_tokens_follow_the_law() -> None:
    q = torch.stack([law_of(row, DRAFTING) for row in DRAFT])
    assert_outcomes_follow(run_rounds(TARGET, DRAFT, DRAFTING), TARGET.double().softmax(-1), q)


def emitted_tokens_follow_the_target() -> None:
    """The weaker check: only what a user sees, the first token emitted."""
    rounds = run_rounds(TARGET, DRAFT, DRAFTING)
    first = torch.where(rounds.num_accepted > 0, rounds.drafted[:, 0], rounds.bonus)
    assert_follows(first.bincount(minlength=VOCAB).numpy(), TARGET[0].double().softmax(0).numpy())


def tokens_not_drawn_follow_the_law() -> None:
    best = int(TARGET[0].argmax())
    rounds = run_rounds_not_drawn(TARGET, torch.full((ROUNDS, 1), best))
    q = torch.nn.functional.one_hot(torch.tensor([best]), VOCAB).double()
    assert_outcomes_follow(rounds, TARGET.double().softmax(-1), q)


def races_follow_the_law_over_positions(head_probability: float = 0.15) -> None:
    params = SamplingParams(temperature=1.0, seed=5)
    tokens = race(TARGET[:1].expand(ROUNDS, -1), rows_at(torch.arange(ROUNDS), params), head_probability)
    p = processed_log_probs(TARGET[:1], rows_at(torch.arange(1), params))[0].double().exp()
    assert_follows(tokens.bincount(minlength=VOCAB).numpy(), p.numpy())


CHECKS = [
    drawn_tokens_follow_the_law,
    emitted_tokens_follow_the_target,
    tokens_not_drawn_follow_the_law,
    races_follow_the_law_over_positions,
]


@pytest.mark.parametrize("unbroken", CHECKS)
def test_the_checks_pass_on_the_code_as_it_is(unbroken: Callable[[], None]) -> None:
    unbroken()


def draw_from_p(p: Tensor, token_ids: Tensor, q: Tensor) -> Tensor:
    """Instead of the residual."""
    return p


def keep_the_refused_point_mass(p: Tensor, token_ids: Tensor, q: Tensor) -> Tensor:
    """The residual, but p itself where the token was not drawn."""
    is_point_mass = (q == 1).any(-1, keepdim=True)
    return torch.where(is_point_mass, p, p.scatter_add(1, token_ids, -q).clamp(min=0))


def residual_with_the_acceptance_noise(seed: Tensor, choice: Tensor, position: Tensor, domain: Tensor) -> Tensor:
    shared = torch.where(domain == int(NoiseDomain.RESIDUAL), int(NoiseDomain.ACCEPTANCE), domain)
    return uniform(seed, choice, position, shared)


def acceptance_with_the_draft_s_noise(seed: Tensor, choice: Tensor, position: Tensor, domain: Tensor) -> Tensor:
    shared = torch.where(domain == int(NoiseDomain.ACCEPTANCE), int(NoiseDomain.DRAFT), domain)
    return uniform(seed, choice, position, shared)


def one_noise_for_all_positions(seed: Tensor, choice: Tensor, position: Tensor, domain: Tensor) -> Tensor:
    return uniform(seed, choice, torch.zeros_like(position), domain)


def draw_before_truncation(laws: SparseDistributions, rows: RowSampling) -> Tensor:
    whole = draft_law._laws(DRAFT.expand(len(laws.probs), -1), rows, (), 1.0, VOCAB)
    return honest_draw(whole, rows)


def not_normalised(weights: Tensor) -> Tensor:
    return weights


@pytest.mark.parametrize("check", [drawn_tokens_follow_the_law, emitted_tokens_follow_the_target])
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        pytest.param(rejection, "_residual", draw_from_p, id="p for the residual"),
        pytest.param(draft_law, "_normalised", not_normalised, id="q not normalised"),
        pytest.param(rejection, "uniform", residual_with_the_acceptance_noise, id="acceptance noise for the residual"),
        pytest.param(rejection, "uniform", acceptance_with_the_draft_s_noise, id="draft noise for the acceptance"),
        pytest.param(rejection, "uniform", one_noise_for_all_positions, id="one noise for all positions"),
        pytest.param(SparseDistributions, "draw", draw_before_truncation, id="drawn before truncation"),
    ],
)
def test_a_broken_rejection_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, broken: object, check: Callable[[], None]
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        check()


def test_a_refused_token_that_may_come_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "_residual", keep_the_refused_point_mass)
    drawn_tokens_follow_the_law()
    with pytest.raises(AssertionError):
        tokens_not_drawn_follow_the_law()


def race_without_position(
    seed: Tensor, choice: Tensor, position: Tensor, token_id: Tensor, domain: NoiseDomain | Tensor
) -> Tensor:
    return gumbel(seed, choice, torch.zeros_like(position), token_id, domain)


def one_noise_for_all_tokens(
    seed: Tensor, choice: Tensor, position: Tensor, token_id: Tensor, domain: NoiseDomain | Tensor
) -> Tensor:
    return gumbel(seed, choice, position, torch.zeros_like(token_id), domain)


def one_noise_for_both_heats(
    seed: Tensor, choice: Tensor, position: Tensor, token_id: Tensor, domain: NoiseDomain | Tensor
) -> Tensor:
    return gumbel(seed, choice, position, token_id, NoiseDomain.HEAD)


def tail_mass_halved(values: Tensor) -> Tensor:
    return 0.5 * row_sums(values)


def tail_mass_of_the_likeliest_alone(values: Tensor) -> Tensor:
    return values.amax(-1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        pytest.param("gumbel", race_without_position, id="noise without position"),
        pytest.param("gumbel", one_noise_for_all_tokens, id="noise without token"),
        pytest.param("gumbel", one_noise_for_both_heats, id="bucket and token 0 share noise"),
        pytest.param("_row_sums", tail_mass_halved, id="half the tail's mass"),
        pytest.param("_row_sums", tail_mass_of_the_likeliest_alone, id="the tail's likeliest for its mass"),
    ],
)
def test_a_broken_race_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, broken: object) -> None:
    monkeypatch.setattr(sampling, name, broken)
    with pytest.raises(AssertionError):
        races_follow_the_law_over_positions()
