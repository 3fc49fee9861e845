"""The whole loop in rejection mode, draft, verify, commit, on models known exactly: the joint law of what it emits.

Over all VOCAB^LENGTH continuations; a false alarm once in 10,000 each, see tests/unit/core/law.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from saguaro.core.draft_law import SparseDistributions, draft
from saguaro.core.proposal import Proposals
from saguaro.core.rejection import verify
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from tests.unit.core.law import assert_follows
from tests.unit.core.rejection_rounds import AS_IT_IS, Drafting, point_masses, rows_at, split

VOCAB, LENGTH, SEQUENCES, PROMPT = 5, 4, 100_000, 2
# The next token's logits are a row of a table, chosen by the last token.
TARGET = 1.5 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0))
OTHER = TARGET + torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))
UNRELATED = 2.0 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(2))

# Last tokens [n] and the rows of the next ones -> a token for each and its law.
Drafter = Callable[[Tensor, RowSampling], tuple[Tensor, SparseDistributions]]


def rows_of(sequences: Tensor, positions: Tensor) -> RowSampling:
    """Rows of sequences that differ by seed."""
    return dataclasses.replace(rows_at(positions), seed=sequences)


def drawing(model: Tensor, drafting: Drafting = AS_IT_IS) -> Drafter:
    def of(last: Tensor, rows: RowSampling) -> tuple[Tensor, SparseDistributions]:
        fan_out = [drafting.fan_out] * len(last)
        drawn = draft(model[last], rows, fan_out, drafting.cached_scale, drafting.support)
        return drawn.token_ids, drawn.laws

    return of


def copying(last: Tensor, rows: RowSampling) -> tuple[Tensor, SparseDistributions]:
    """As an n-gram would: a function of the text, drawn from nothing."""
    token_ids = (last * 3 + 1) % VOCAB
    return token_ids, point_masses(token_ids)


def emitted_by(choose: Callable[[Tensor], list[tuple[Tensor, Drafter, int]]]) -> Tensor:  # [SEQUENCES, LENGTH]
    """The loop. `choose` splits sequences, by their last tokens, into groups that are (mask, drafter, K)."""
    tokens = torch.full((SEQUENCES, 2 * LENGTH + 1), PROMPT)
    num_tokens = torch.ones(SEQUENCES, dtype=torch.int64)
    while len(running := (num_tokens <= LENGTH).nonzero().squeeze(1)):
        last = tokens[running, num_tokens[running] - 1]
        for mask, drafter, lookahead in choose(last):
            if mask.any():
                _round(tokens, num_tokens, running[mask], drafter, lookahead)
    return tokens[:, 1 : LENGTH + 1]


def _round(tokens: Tensor, num_tokens: Tensor, sequences: Tensor, drafter: Drafter, lookahead: int) -> None:
    """One round of these sequences; the outcome is written into `tokens`."""
    start = num_tokens[sequences]
    line, laws = [tokens[sequences, start - 1]], []
    for place in range(lookahead):
        token_ids, law = drafter(line[-1], rows_of(sequences, start + place))
        line.append(token_ids)
        laws.append(law)
    width = lookahead + 1
    rows = rows_of(sequences.repeat_interleave(width), (start.unsqueeze(1) + torch.arange(width)).flatten())
    log_probs = processed_log_probs(TARGET[torch.stack(line, dim=1).flatten()], rows)
    drafted = torch.stack(line, dim=1)[:, 1:]
    num_accepted, bonus = split(verify(log_probs, rows, _batch(drafted, laws)))
    for place in range(lookahead):
        tokens[sequences, start + place] = drafted[:, place]
    tokens[sequences, start + num_accepted] = bonus
    num_tokens[sequences] += num_accepted + 1


def _batch(drafted: Tensor, laws: list[SparseDistributions]) -> Proposals:
    count, lookahead = drafted.shape
    if lookahead == 0:
        empty = SparseDistributions(torch.zeros(0, 1).long(), torch.zeros(0, 1).half())
        return Proposals(drafted.flatten(), torch.zeros(count).long(), empty)
    return Proposals(
        drafted.flatten(),
        torch.full((count,), lookahead),
        SparseDistributions(
            torch.stack([law.token_ids for law in laws], dim=1).flatten(0, 1),
            torch.stack([law.probs for law in laws], dim=1).flatten(0, 1),
        ),
    )


def assert_joint_law(emitted: Tensor) -> None:
    step = TARGET.double().softmax(-1)
    joint = step[PROMPT]
    for _ in range(LENGTH - 1):
        joint = joint.unsqueeze(-1) * step
    cells = emitted @ torch.tensor([VOCAB ** (LENGTH - 1 - place) for place in range(LENGTH)])
    assert_follows(cells.bincount(minlength=VOCAB**LENGTH).numpy(), joint.flatten().numpy())


def always(drafter: Drafter, lookahead: int) -> Callable[[Tensor], list[tuple[Tensor, Drafter, int]]]:
    return lambda last: [(torch.ones_like(last, dtype=torch.bool), drafter, lookahead)]


@pytest.mark.parametrize(
    ("drafter", "lookahead"),
    [
        pytest.param(copying, 0, id="plain"),
        pytest.param(drawing(TARGET), 3, id="the target itself"),
        pytest.param(drawing(OTHER), 3, id="another model"),
        pytest.param(drawing(OTHER), 1, id="another model, K = 1", marks=pytest.mark.slow),
        pytest.param(drawing(UNRELATED), 3, id="an unrelated model"),
        pytest.param(drawing(OTHER, Drafting(support=2)), 3, id="M = 2", marks=pytest.mark.slow),
        pytest.param(drawing(OTHER, Drafting(1, 0.5)), 3, id="C = 0.5", marks=pytest.mark.slow),
        pytest.param(drawing(OTHER, Drafting(1, 0.0)), 3, id="C = 0"),
        pytest.param(drawing(OTHER, Drafting(2, 0.0)), 2, id="C = 0, F = 2", marks=pytest.mark.slow),
        pytest.param(copying, 3, id="not drawn"),
    ],
)
def test_the_loop_emits_the_joint_law_of_the_target(drafter: Drafter, lookahead: int) -> None:
    assert_joint_law(emitted_by(always(drafter, lookahead)))


def test_the_joint_law_holds_where_the_text_decides_between_draft_fallback_and_nothing() -> None:
    def by_text(last: Tensor) -> list[tuple[Tensor, Drafter, int]]:
        return [
            ((last == 0) | (last == 3), drawing(OTHER, Drafting(1, 0.5)), 3),
            ((last == 1) | (last == 4), copying, 2),
            (last == 2, copying, 0),
        ]

    assert_joint_law(emitted_by(by_text))


def test_neighbouring_seeds_are_independent() -> None:
    emitted = emitted_by(always(drawing(OTHER), 3))
    # The joint law of two first tokens is the product.
    first = TARGET[PROMPT].double().softmax(0)
    pairs = emitted[:, 0].view(-1, 2) @ torch.tensor([VOCAB, 1])
    assert_follows(pairs.bincount(minlength=VOCAB**2).numpy(), torch.outer(first, first).flatten().numpy())
