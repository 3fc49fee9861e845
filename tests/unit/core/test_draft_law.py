"""The draft's law: what is drawn from is what travels, Saguaro sampling and truncation included."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saguaro.core.draft_law import SUPPORT, SparseDistributions, draft, guesses
from saguaro.core.fan_out import candidates_for
from saguaro.core.proposal import Proposal, Proposals
from saguaro.core.row_sampling import RowSampling
from saguaro.types import SamplingParams
from tests.unit.core.law import assert_follows
from tests.unit.core.rejection_rounds import PLAIN, ROUNDS, Drafting, law_of, rows_at

ROWS, VOCAB = 40, 300
LOGITS = 2.0 * torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0))


def dense(laws: SparseDistributions, vocab: int = VOCAB) -> Tensor:  # [rows, vocab]
    empty = torch.zeros(len(laws.probs), vocab, dtype=torch.float64)
    return empty.scatter_add(1, laws.token_ids, laws.normalised())


@pytest.mark.parametrize(
    "drafting",
    [
        Drafting(),
        Drafting(support=1),
        Drafting(fan_out=3, cached_scale=0.5),
        Drafting(fan_out=3, cached_scale=0.0, support=8),
        Drafting(fan_out=0, cached_scale=0.0),
        Drafting(fan_out=200, cached_scale=0.2, support=100),
        Drafting(fan_out=400, cached_scale=0.0, support=VOCAB),  # all are scaled: no effect
    ],
)
def test_the_law_is_softmax_scaled_truncated_rounded_and_normalised(drafting: Drafting) -> None:
    rows = rows_at(torch.arange(ROWS))
    laws = draft(LOGITS, rows, [drafting.fan_out] * ROWS, drafting.cached_scale, drafting.support).laws
    oracle = torch.stack([law_of(row, drafting) for row in LOGITS])
    # float32 logits and float64 ones may fall to either side of a float16 boundary.
    torch.testing.assert_close(dense(laws), oracle, rtol=2.0**-9, atol=2.0**-23)
    assert (dense(laws) > 0).sum(1).max() <= drafting.support


def test_rows_scale_by_the_fan_out_of_their_own_place() -> None:
    fan_out = [place % 5 for place in range(ROWS)]
    together = dense(draft(LOGITS, rows_at(torch.arange(ROWS)), fan_out, 0.3).laws)
    for row, count in enumerate(fan_out):
        oracle = law_of(LOGITS[row], Drafting(count, 0.3))
        torch.testing.assert_close(together[row], oracle, rtol=2.0**-9, atol=2.0**-23)


def test_rows_scale_by_their_own_c() -> None:
    scales = [(1.0, 0.3, 0.0)[row % 3] for row in range(ROWS)]
    together = dense(draft(LOGITS, rows_at(torch.arange(ROWS)), [4] * ROWS, scales).laws)
    for row, scale in enumerate(scales):
        torch.testing.assert_close(together[row], law_of(LOGITS[row], Drafting(4, scale)), rtol=2.0**-9, atol=2.0**-23)


def test_tokens_follow_the_law_that_travels() -> None:
    # A false alarm once in 10,000. Over positions, with a support that leaves out most of the vocabulary.
    drawn = draft(LOGITS[:1].expand(ROUNDS, -1), rows_at(torch.arange(ROUNDS)), [4] * ROUNDS, 0.4, support=20)
    assert_follows(drawn.token_ids.bincount(minlength=VOCAB).numpy(), dense(drawn.laws)[0].numpy())


def test_a_token_has_a_positive_probability_in_its_law() -> None:
    drawn = draft(LOGITS, rows_at(torch.arange(ROWS)), support=3)
    assert (drawn.laws.of(drawn.token_ids) > 0).all()


@pytest.mark.parametrize("support", [SUPPORT, VOCAB])
def test_the_verifier_s_law_has_the_very_bits_of_the_drafter_s(support: int) -> None:
    drawn = draft(LOGITS, rows_at(torch.arange(ROWS)), [3] * ROWS, 0.5, support)
    arrived = Proposals.of([Proposal.drawn(tuple(drawn.token_ids.tolist()), drawn.laws.pack(), VOCAB)])
    assert torch.equal(dense(arrived.laws), dense(drawn.laws))
    assert torch.equal(arrived.laws.of(arrived.token_ids), drawn.laws.of(drawn.token_ids))


def test_the_sum_of_a_law_is_the_same_in_any_order() -> None:
    probs = draft(LOGITS, rows_at(torch.arange(ROWS)), support=VOCAB).laws.probs.double()
    shuffled = probs[:, torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))]
    assert torch.equal(probs.sum(1), shuffled.sum(1))
    assert torch.equal(probs.sum(1), probs.flip(1).cumsum(1)[:, -1])


def test_a_law_travels_without_what_has_no_probability() -> None:
    logits = torch.tensor([[0.0, 1.0, -math.inf, -40.0, 2.0]])
    (packed,) = draft(logits, rows_at(torch.arange(1))).laws.pack()
    assert (len(packed.token_ids), len(packed.probs)) == (12, 6)


def test_at_temperature_zero_the_law_is_the_first_argmax_alone_or_beside_random_rows() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]] * 2)
    for params in ([SamplingParams()] * 2, [SamplingParams(), PLAIN]):
        drawn = draft(logits, RowSampling.build(params, [0, 1]), [1, 1], 0.0)
        assert drawn.token_ids[0] == 1
        assert dense(drawn.laws, 4)[0].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_row_drafts_the_same_alone_and_in_any_batch() -> None:
    params = [SamplingParams(), PLAIN, SamplingParams(temperature=1.2, top_p=0.9), SamplingParams(0.8, top_k=5)] * 10
    fan_out = [row % 4 for row in range(ROWS)]
    together = draft(LOGITS, RowSampling.build(params, range(ROWS)), fan_out, 0.5)
    for row in range(ROWS):
        alone = draft(LOGITS[row : row + 1], RowSampling.build([params[row]], [row]), [fan_out[row]], 0.5)
        assert alone.token_ids[0] == together.token_ids[row]
        assert torch.equal(dense(alone.laws)[0], dense(together.laws)[row])


def test_guesses_go_by_the_draft_s_logits_and_the_scaled_tokens_are_among_them() -> None:
    ranked = guesses(LOGITS, 4).token_ids
    assert torch.equal(ranked, LOGITS.topk(4).indices)
    # What C = 0 takes from the draft is exactly what the three guesses without the drafted token can be.
    drawn = draft(LOGITS, rows_at(torch.arange(ROWS)), [3] * ROWS, 0.0)
    assert (dense(drawn.laws).gather(1, ranked) == 0).all()
    for row, drafted in zip(ranked.tolist(), drawn.token_ids.tolist(), strict=True):
        assert candidates_for(row, drafted, 3) == tuple(row[:3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0] * ROWS, 1.5), "cached_scale is 1.5"),
        (([0] * ROWS, -0.1), "cached_scale is -0.1"),
        (([0], 0.5), "1 fan-outs and 40 scales for 40 rows"),
        (([0] * ROWS, 1.0, 0), "support is 0"),
    ],
)
def test_what_makes_no_law_is_an_error(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draft(LOGITS, rows_at(torch.arange(ROWS)), *arguments)  # type: ignore[arg-type]
