"""Acceptance: the longest right prefix and the token after it; and the law of what a whole coupled loop emits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saguaro.core.acceptance import accept
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import race
from saguaro.types import SamplingParams, TokenIds, VerificationOutcome
from tests.unit.core.law import assert_follows

VOCAB = 5
LENGTH = 3  # emitted tokens whose joint law is tested
SEQUENCES = 10_000
PARAMS = SamplingParams(temperature=1.0, choice=1)
# A model that is known exactly: the next token's logits are a row of a table, chosen by the last token.
TARGET = 1.5 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0))
OTHER_DRAFT = TARGET + torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))
PROMPT: TokenIds = (2,)

Drafter = Callable[[list[TokenIds], Sequence[int], int], list[TokenIds]]  # sequences, their seeds, K


@pytest.mark.parametrize(
    ("target_tokens", "draft", "outcome"),
    [
        ([7], (), VerificationOutcome(0, 7)),
        ([7, 8], (7,), VerificationOutcome(1, 8)),
        ([7, 8], (6,), VerificationOutcome(0, 7)),
        ([7, 8, 9], (7, 8), VerificationOutcome(2, 9)),
        ([7, 8, 9], (7, 7), VerificationOutcome(1, 8)),
        ([7, 8, 9], (6, 8), VerificationOutcome(0, 7)),  # right again after a mismatch counts nothing
    ],
)
def test_the_longest_right_prefix_is_accepted_and_the_target_adds_one(
    target_tokens: list[int], draft: TokenIds, outcome: VerificationOutcome
) -> None:
    assert accept(target_tokens, [draft]) == [outcome]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5), max_size=6), st.integers(0, 2))
def test_sequences_of_a_batch_are_decided_each_alone(pairs: list[list[tuple[int, int]]], last: int) -> None:
    drafts = [tuple(draft for draft, _ in sequence) for sequence in pairs]
    rows = [[*(target for _, target in sequence), last] for sequence in pairs]
    flat = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
    alone = [accept(own, [draft])[0] for own, draft in zip(rows, drafts, strict=True)]
    assert accept(flat, drafts) == alone


@pytest.mark.parametrize("target_tokens", [[], [1], [1, 2, 3]])
def test_rows_that_do_not_match_the_drafts_are_an_error(target_tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="rows"):
        accept(target_tokens, [(1,)])


def choose(model: Tensor, sequences: list[TokenIds], seeds: Sequence[int]) -> list[int]:
    """The race's token after each sequence, noise of that sequence's seed and length."""
    params = [dataclasses.replace(PARAMS, seed=seed) for seed in seeds]
    rows = RowSampling.build(params, [len(sequence) for sequence in sequences])
    return race(model[[sequence[-1] for sequence in sequences]], rows).tolist()


def autoregressive(model: Tensor) -> Drafter:
    def draft(sequences: list[TokenIds], seeds: Sequence[int], lookahead: int) -> list[TokenIds]:
        grown = sequences
        for _ in range(lookahead):
            chosen = choose(model, grown, seeds)
            grown = [(*sequence, token) for sequence, token in zip(grown, chosen, strict=True)]
        return [long[len(short) :] for long, short in zip(grown, sequences, strict=True)]

    return draft


def always_wrong(sequences: list[TokenIds], seeds: Sequence[int], lookahead: int) -> list[TokenIds]:
    return [
        tuple((token + 1) % VOCAB for token in right) for right in autoregressive(TARGET)(sequences, seeds, lookahead)
    ]


def at_random(sequences: list[TokenIds], seeds: Sequence[int], lookahead: int) -> list[TokenIds]:
    generator = torch.Generator().manual_seed(sum(map(len, sequences)))
    drawn = torch.randint(0, VOCAB, (len(sequences), lookahead), generator=generator)
    return [tuple(row) for row in drawn.tolist()]


def decode(drafter: Drafter, lookahead: int) -> tuple[list[TokenIds], float]:
    """The loop: draft, verify, commit. What each seed emitted, and the mean of tokens accepted in the first round."""
    sequences = [PROMPT] * SEQUENCES
    accepted_first = None
    while running := [i for i, sequence in enumerate(sequences) if len(sequence) < len(PROMPT) + LENGTH]:
        drafts = drafter([sequences[i] for i in running], running, lookahead)
        rows = [
            (sequences[i] + draft[:n], i)
            for i, draft in zip(running, drafts, strict=True)
            for n in range(lookahead + 1)
        ]
        outcomes = accept(choose(TARGET, [tokens for tokens, _ in rows], [seed for _, seed in rows]), drafts)
        for i, draft, outcome in zip(running, drafts, outcomes, strict=True):
            sequences[i] += (*draft[: outcome.num_accepted], outcome.bonus_token)
        if accepted_first is None:
            accepted_first = sum(outcome.num_accepted for outcome in outcomes) / len(outcomes)
    assert accepted_first is not None
    return [sequence[len(PROMPT) : len(PROMPT) + LENGTH] for sequence in sequences], accepted_first


@pytest.fixture(scope="module")
def plain() -> list[TokenIds]:
    return decode(at_random, 0)[0]


def test_plain_decoding_follows_the_joint_law_of_the_model(plain: list[TokenIds]) -> None:
    # Chi-square over all VOCAB^3 continuations: a false alarm once in 10,000, see tests/unit/core/law.py.
    step = TARGET.double().softmax(-1)
    joint = step[PROMPT[-1]][:, None, None] * step[:, :, None] * step[None, :, :]
    cells = torch.tensor(plain) @ torch.tensor([VOCAB**2, VOCAB, 1])
    assert_follows(cells.bincount(minlength=VOCAB**LENGTH).numpy(), joint.flatten().numpy())


@pytest.mark.parametrize("lookahead", [*(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2)), 3])
@pytest.mark.parametrize(
    ("drafter", "least_accepted", "most_accepted"),
    [
        pytest.param(autoregressive(TARGET), 1.0, 1.0, id="the target itself"),
        pytest.param(autoregressive(OTHER_DRAFT), 0.2, 0.9, id="another model"),
        pytest.param(always_wrong, 0.0, 0.0, id="always wrong"),
        pytest.param(at_random, 0.05, 0.4, id="random"),
    ],
)
def test_whatever_is_drafted_each_seed_emits_the_tokens_of_plain_decoding(
    drafter: Drafter, least_accepted: float, most_accepted: float, lookahead: int, plain: list[TokenIds]
) -> None:
    emitted, accepted_first = decode(drafter, lookahead)
    assert emitted == plain
    assert least_accepted <= accepted_first / lookahead <= most_accepted
