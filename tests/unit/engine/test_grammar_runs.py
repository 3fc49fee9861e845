"""The masks of a verification are those of decoding step by step, and the states stay where they were."""

from __future__ import annotations

import random

import pytest
import torch

from saguaro.engine.grammar import ConstraintCompiler, ConstraintState, TokenMasks, masks_for_runs
from saguaro.errors import SequenceFault
from saguaro.types import Constraint, ConstraintKind
from tests.unit.engine.grammar_walks import Walker
from tests.unit.engine.test_grammar_json import json_schema
from tests.unit.engine.test_grammar_text import SUM_GBNF

CONSTRAINTS = {
    "schema": json_schema(
        {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name"]}
    ),
    "regex": Constraint(ConstraintKind.REGEX, r"(ab|[0-9]{2,5}x)+"),
    "grammar": Constraint(ConstraintKind.GRAMMAR, SUM_GBNF),
}


@pytest.fixture(params=CONSTRAINTS)
def start(request: pytest.FixtureRequest, compiler: ConstraintCompiler) -> ConstraintState:
    return compiler.compile(CONSTRAINTS[request.param])


def step_masks(state: ConstraintState, tokens: list[int]) -> torch.Tensor:
    """Mask by mask, token by token."""
    state, rows = state.copy(), [state.masks_for_run(())]
    for token_id in tokens:
        state.advance([token_id])
        rows.append(state.masks_for_run(()))
    return torch.cat(rows)


@pytest.mark.parametrize("seed", range(5))
def test_a_runs_masks_are_those_of_single_steps_from_any_place(
    start: ConstraintState, seed: int, walker: Walker
) -> None:
    tokens = [*walker.walk(start, seed), 2]
    split = random.Random(seed).randrange(len(tokens))
    start.advance(tokens[:split])
    before = start.masks_for_run(())
    assert torch.equal(start.masks_for_run(tokens[split:]), step_masks(start, tokens[split:]))
    assert torch.equal(start.masks_for_run(()), before)
    start.advance(tokens[split:])
    assert start.is_terminated


def test_rows_up_to_a_refused_draft_token_are_right_and_those_after_it_leave_something(
    start: ConstraintState, walker: Walker
) -> None:
    good = walker.walk(start, seed=3)[:2]
    refused = 1  # <|im_start|>
    masks = start.masks_for_run([*good, refused, 5, 6])
    assert torch.equal(masks[:3], step_masks(start, good))
    assert not masks[2, 0] & (1 << refused)
    assert (masks[3:] != 0).any(dim=1).all()  # a softmax over nothing would be NaN
    start.advance(good)  # the state did not take the refused token


def test_after_the_end_nothing_but_the_end_is_allowed_also_among_draft_tokens(compiler: ConstraintCompiler) -> None:
    state = compiler.compile(Constraint(ConstraintKind.REGEX, "[a-z]*"))
    only_the_end = state.vocabulary.only_the_end
    masks = state.masks_for_run([2, 77, 2])
    assert torch.equal(masks[1:], only_the_end.expand(3, -1))
    state.advance([2, 0])
    assert torch.equal(state.masks_for_run([0]), only_the_end.expand(2, -1))
    with pytest.raises(SequenceFault, match="not allowed by the constraint"):
        state.advance([77])


def test_a_token_that_is_not_allowed_is_named_and_not_taken(start: ConstraintState, walker: Walker) -> None:
    tokens = walker.walk(start, seed=1)
    with pytest.raises(SequenceFault, match=r"token 1 \(.*im_start.*\), number 1 of 3, is not allowed"):
        start.advance([tokens[0], 1, tokens[1]])
    start.advance(tokens[1:])
    assert start.may_end


def test_an_end_where_the_grammar_may_not_end_is_refused(start: ConstraintState) -> None:
    assert not start.may_end
    with pytest.raises(SequenceFault, match=r"token 2 .* is not allowed"):
        start.advance([2])


def test_copies_go_their_own_ways(start: ConstraintState, walker: Walker) -> None:
    first, second = walker.walk(start, seed=0), walker.walk(start, seed=4)
    before = start.masks_for_run(())
    branches = [(start.copy(), first), (start.copy(), second)]
    for branch, tokens in branches:
        branch.advance(tokens[: len(tokens) // 2])
    for branch, tokens in branches:
        twin = branch.copy()
        branch.advance(tokens[len(tokens) // 2 :])
        assert branch.may_end
        twin.advance(tokens[len(tokens) // 2 :])
    assert torch.equal(start.masks_for_run(()), before)


def test_a_batch_masks_the_rows_of_its_constrained_runs_alone(start: ConstraintState, walker: Walker) -> None:
    tokens = walker.walk(start, seed=2)
    later = start.copy()
    later.advance(tokens[:1])
    masks = masks_for_runs([(None, (9, 9)), (start, tokens[:2]), (None, ()), (later, ())])
    assert masks is not None
    assert masks.rows.tolist() == [3, 4, 5, 7]
    assert torch.equal(masks.bits[:3], start.masks_for_run(tokens[:2]))
    assert torch.equal(masks.bits[3:], later.masks_for_run(()))
    logits = torch.randn(8, walker.vocab)
    masked = masks.apply(logits)
    assert torch.equal(masked[[0, 1, 2, 6]], logits[[0, 1, 2, 6]])
    for row, allowed in zip(masks.rows.tolist(), masks.allowed(walker.vocab), strict=True):
        assert torch.equal(masked[row], torch.where(allowed, logits[row], -torch.inf))


def test_a_batch_without_constraints_has_no_masks() -> None:
    assert masks_for_runs([(None, (1, 2)), (None, ())]) is None


@pytest.mark.parametrize("padding", [0, 1, 40, 1000])
def test_ids_beyond_the_tokenizers_are_never_allowed_and_logits_stay_as_they_were(
    padding: int, start: ConstraintState, walker: Walker
) -> None:
    logits = torch.randn(1, walker.vocab + padding)
    kept = logits.clone()
    masked = TokenMasks(torch.tensor([0]), start.masks_for_run(())).apply(logits)
    assert masked.isfinite().nonzero()[:, 1].tolist() == walker.allowed(start)
    assert torch.equal(logits, kept)
