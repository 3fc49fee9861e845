import pytest
import torch
from torch import Tensor

from distill.loss import PartialLaws, losses

VOCAB = 12
EVERY_COLUMN = torch.arange(VOCAB)


def laws_of(logits: Tensor, k: int, column_of: Tensor = EVERY_COLUMN) -> PartialLaws:
    top = logits.log_softmax(-1).topk(k)
    return PartialLaws.of(top.indices.int(), top.values, column_of)


def mixed(p: Tensor, q: Tensor) -> Tensor:
    """As the loss weighs them."""
    return 0.15 * (torch.xlogy(p, p) - p * q.log()).sum(-1) + (p - q).abs().sum(-1) / 2


@pytest.fixture
def logits() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(5, VOCAB, generator=generator) * 2, torch.randn(5, VOCAB, generator=generator) * 2


def test_with_every_token_known_it_is_the_dense_loss(logits: tuple[Tensor, Tensor]) -> None:
    target, draft = logits
    dense = mixed(target.softmax(-1), draft.softmax(-1))
    torch.testing.assert_close(losses(laws_of(target, VOCAB), draft), dense, atol=1e-4, rtol=1e-4)


def test_with_few_known_it_is_the_dense_loss_of_laws_with_one_token_for_the_tail(
    logits: tuple[Tensor, Tensor],
) -> None:
    target, draft = logits
    known = target.topk(4).indices
    p, q = (law.softmax(-1) for law in (target, draft))
    p, q = (torch.cat((law.gather(1, known), 1 - law.gather(1, known).sum(-1, keepdim=True)), 1) for law in (p, q))
    torch.testing.assert_close(losses(laws_of(target, 4), draft), mixed(p, q), atol=1e-4, rtol=1e-4)


def test_mass_outside_the_drafts_vocabulary_is_dropped(logits: tuple[Tensor, Tensor]) -> None:
    target, draft = logits
    inside = torch.tensor([0, 2, 3, 7, 9, 11])
    column_of = torch.full((VOCAB,), -1)
    column_of[inside] = torch.arange(len(inside))
    conditioned = target[:, inside].softmax(-1)
    found = losses(laws_of(target, VOCAB, column_of), draft[:, inside])
    torch.testing.assert_close(found, mixed(conditioned, draft[:, inside].softmax(-1)), atol=1e-4, rtol=1e-4)


def test_it_is_zero_where_the_draft_is_the_target(logits: tuple[Tensor, Tensor]) -> None:
    target, _ = logits
    torch.testing.assert_close(losses(laws_of(target, 4), target), torch.zeros(5), atol=1e-5, rtol=0)


def test_the_gradient_is_that_of_the_formula_written_out(logits: tuple[Tensor, Tensor]) -> None:
    target, draft = logits
    laws = laws_of(target, 4, torch.tensor([-1, *range(VOCAB - 1)]))  # one token the draft has not
    weights = torch.arange(1.0, 6.0)
    by_hand, by_autograd = (draft[:, 1:].clone().requires_grad_() for _ in range(2))
    (losses(laws, by_hand) * weights).sum().backward()
    known = torch.where(laws.probs > 0, by_autograd.softmax(-1).gather(1, laws.columns), 1e-30)
    q = torch.cat((known, 1 - known.sum(-1, keepdim=True)), 1)
    p = torch.cat((laws.probs, laws.tail[:, None]), 1)
    assert ((q < p).any(-1) & (q > p).any(-1)).all()
    (mixed(p, q) * weights).sum().backward()
    assert by_hand.grad is not None
    torch.testing.assert_close(by_hand.grad, by_autograd.grad, atol=1e-5, rtol=1e-4)


def test_a_certain_law_a_row_of_unknown_tokens_and_rounding_above_one_stay_finite() -> None:
    draft = torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).requires_grad_()
    column_of = torch.tensor([0, 1, -1, -1])
    ids = torch.tensor([[0, 1], [2, 3], [0, 1]])
    log_probs = torch.tensor([[0.0, -65504.0], [0.0, -9.0], [0.0, 0.0]]).half()
    loss = losses(PartialLaws.of(ids, log_probs, column_of), draft)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert draft.grad is not None
    assert draft.grad.isfinite().all()
    assert (draft.grad[1] == 0).all(), "nothing can be learnt of tokens that the draft has not"
