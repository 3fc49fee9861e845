import pytest
import torch

from distill.cut import cut
from distill.evaluation import coupled_acceptance, evaluate, hit_rate, tokens_a_round


def test_coupled_acceptance_is_the_share_of_races_with_one_winner() -> None:
    """400,000 races: an error of 0.004 is five standard deviations, 6e-7."""
    generator = torch.Generator().manual_seed(0)
    p, q = torch.tensor([[0.5, 0.3, 0.2, 0.0]]), torch.tensor([[0.1, 0.6, 0.2, 0.1]])
    clocks = torch.empty(400_000, 4).exponential_(generator=generator)
    same = ((p / clocks).argmax(-1) == (q / clocks).argmax(-1)).float().mean()
    assert coupled_acceptance(p, q).item() == pytest.approx(same.item(), abs=0.004)


def test_coupled_acceptance_of_broad_laws_is_the_sum_over_their_tokens() -> None:
    p, q = torch.randn(2, 3, 500, generator=torch.Generator().manual_seed(1)).mul(3).softmax(-1).unbind()
    p, q = p.clone(), q.clone()
    p[0, :9], q[0, 4:20] = 0, 0
    a, b = p.double(), q.double()
    rivals = torch.maximum(a[:, None, :] * b[:, :, None], b[:, None, :] * a[:, :, None]).sum(-1)
    both = a * b
    written_out = torch.where(both > 0, both / rivals, 0.0).sum(-1).float()
    torch.testing.assert_close(coupled_acceptance(p, q), written_out, atol=1e-5, rtol=1e-4)


def test_tails_only_lower_coupled_acceptance() -> None:
    p = q = torch.tensor([[0.5, 0.3]])
    tail = torch.tensor([0.2])
    assert coupled_acceptance(p, q, tail, tail).item() == pytest.approx(0.5 / 1.2 + 0.3 / 1.2)


def test_tokens_a_round_are_one_and_the_leading_acceptances() -> None:
    # Starts of K = 2: (1, 1) -> 3, (1, 0) -> 2, (0, 1) -> 1.
    assert tokens_a_round([torch.tensor([1.0, 1.0, 0.0, 1.0])], 2) == pytest.approx(2.0)
    assert tokens_a_round([torch.tensor([0.5, 0.5])], 2) == pytest.approx(1.75)


def test_a_rejected_token_is_no_guess_so_guesses_reach_one_rank_further() -> None:
    ranks = [torch.tensor([2, 9]), torch.tensor([0, 2])]  # K = 1: rejected at rank 2; accepted, then rank 2
    assert hit_rate(ranks, 1, 1) == 0.0
    assert hit_rate(ranks, 1, 2) == 0.5
    assert hit_rate(ranks, 1, 3) == 1.0


def test_the_target_as_its_own_draft_agrees_everywhere(target, samples) -> None:
    figures = evaluate(cut(str(target), range(4), None), samples)
    assert figures.num_positions == sum(sample.num_written for sample in samples)
    assert figures.greedy_agreement > 0.99
    assert figures.greedy_tokens[4] > 4.9
    assert figures.greedy_hits[4][1] > 0.99


def test_what_the_drafts_head_does_not_know_never_agrees(target, samples) -> None:
    chosen = {int(sample.top_ids[place, 0]) for sample in samples for place in range(sample.num_written)}
    others = sorted(set(range(258)) - chosen)
    figures = evaluate(cut(str(target), range(4), others), samples)
    assert figures.greedy_agreement == figures.top3_agreement == figures.greedy_hits[4][8] == 0.0
