"""What a draft is worth on texts that it was not trained on: agreement, acceptance, tokens a round, hits.

The draft is led through the target's texts. Greedy figures are of the texts that the target wrote greedily, those at
temperature 1 of the texts written so. Of the target's laws the likeliest tokens are known; what its tail could add is
left out, so acceptance at temperature 1 is a lower bound, for a broad law by some hundredths: `distill.served`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.batches import Batch
from distill.cut import Draft
from distill.shards import Sample

LOOKAHEADS = (3, 4, 5, 6)
FAN_OUTS = tuple(range(1, 9))
_TEXTS_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over `num_positions` places of held-out texts; shares from 0 to 1."""

    num_positions: int
    greedy_agreement: float
    top3_agreement: float  # the target's choice is among the draft's three likeliest
    overlap: float  # sum of min(p, q) at temperature 1: acceptance in rejection mode
    coupled_acceptance: float  # at temperature 1
    greedy_tokens: dict[int, float]  # a round, by K
    random_tokens: dict[int, float]  # a round at temperature 1, coupled, by K
    greedy_hits: dict[int, dict[int, float]]  # by K, then F: the bonus token is among F guesses at its place


def evaluate(draft: Draft, samples: Sequence[Sample]) -> Evaluation:
    """`samples` must hold greedy texts and texts at temperature 1."""
    greedy = [_readings(draft, group) for group in _groups(samples, 0.0)]
    random = [_readings(draft, group) for group in _groups(samples, 1.0)]
    ranks = [rank for readings in greedy for rank in readings.ranks]
    accepted = [chance for readings in random for chance in readings.coupled]
    all_ranks, all_accepted = torch.cat(ranks), torch.cat(accepted)
    return Evaluation(
        num_positions=len(all_ranks) + len(all_accepted),
        greedy_agreement=float((all_ranks == 0).float().mean()),
        top3_agreement=float((all_ranks < 3).float().mean()),
        overlap=float(torch.cat([item for readings in random for item in readings.overlaps]).mean()),
        coupled_acceptance=float(all_accepted.mean()),
        greedy_tokens={k: tokens_a_round([(rank == 0).float() for rank in ranks], k) for k in LOOKAHEADS},
        random_tokens={k: tokens_a_round(accepted, k) for k in LOOKAHEADS},
        greedy_hits={k: {f: hit_rate(ranks, k, f) for f in FAN_OUTS} for k in LOOKAHEADS},
    )


def coupled_acceptance(p: Tensor, q: Tensor, p_tail: Tensor | None = None, q_tail: Tensor | None = None) -> Tensor:
    """P(both races have one winner), [rows], where target and draft add the same Gumbel noise.

    A token i wins both with probability 1 / sum_j max(p_j / p_i, q_j / q_i): the exponential races are won together iff
    i is first by both clocks. The larger is p's for all j with q_j / p_j below i's, so that one sort gives all sums.
    `p`, `q` [rows, k] are the laws, or known parts of them and the mass of the rest [rows], which enters as p_tail +
    q_tail, the most that it can take.
    """
    order = (q / p).argsort(-1)
    p, q = p.gather(1, order), q.gather(1, order)
    lower, higher = p.cumsum(-1), q.flip(-1).cumsum(-1).flip(-1) - q
    if p_tail is not None and q_tail is not None:
        lower, higher = lower + p_tail[:, None], higher + q_tail[:, None]
    return torch.where((p > 0) & (q > 0), 1 / (lower / p + higher / q), 0.0).sum(-1)


def tokens_a_round(accepted: Iterable[Tensor], lookahead: int) -> float:
    """1 + the expected number of leading acceptances among K, over all starts with K places after them.

    `accepted`: per text, each place's chance of acceptance, [n].
    """
    runs = [
        chances.unfold(0, lookahead, 1).cumprod(-1).sum(-1) + 1 for chances in accepted if len(chances) >= lookahead
    ]
    return float(torch.cat(runs).mean()) if runs else 1.0


def hit_rate(ranks: Iterable[Tensor], lookahead: int, fan_out: int) -> float:
    """Share of rounds whose bonus token is among `fan_out` guesses at its place, over all starts.

    `ranks`: per text, the rank that the draft gives the target's choice, 0 first, [n]. Where a draft token was rejected
    it is no guess, so the guesses reach one rank further.
    """
    hits = []
    for rank in ranks:
        if len(rank) <= lookahead:
            continue
        windows = rank.unfold(0, lookahead + 1, 1)
        num_accepted = (windows[:, :lookahead] == 0).int().cumprod(-1).sum(-1)
        bonus = windows.gather(1, num_accepted[:, None]).squeeze(1)
        reach = torch.where(num_accepted < lookahead, fan_out + 1, fan_out)
        hits.append((bonus < reach).float())
    return float(torch.cat(hits).mean()) if hits else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Readings:
    """Of each text, its places' figures, [n]."""

    ranks: tuple[Tensor, ...]
    overlaps: tuple[Tensor, ...]
    coupled: tuple[Tensor, ...]


def _groups(samples: Sequence[Sample], temperature: float) -> list[Sequence[Sample]]:
    chosen = [sample for sample in samples if sample.temperature == temperature]
    return [chosen[start : start + _TEXTS_AT_A_TIME] for start in range(0, len(chosen), _TEXTS_AT_A_TIME)]


@torch.inference_mode()
def _readings(draft: Draft, samples: Sequence[Sample]) -> _Readings:
    column_of = draft.column_of
    batch = Batch.of(samples, column_of)
    hidden = draft.model.model(input_ids=batch.token_ids, use_cache=False).last_hidden_state.flatten(0, 1)
    logits = draft.head(hidden[batch.rows]).float()
    columns = column_of[torch.cat([sample.top_ids for sample in samples]).long()]
    is_known = columns >= 0
    own = logits.gather(1, columns.clamp_min(0))
    q = torch.where(is_known, (own - logits.logsumexp(-1, keepdim=True)).exp(), 0.0)
    p = torch.cat([sample.top_log_probs for sample in samples]).float().exp()
    p_tail, q_tail = (1 - p.sum(-1)).clamp_min(0), (1 - q.sum(-1)).clamp_min(0)
    ranks = (logits > own[:, :1]).sum(-1)
    ranks = torch.where(is_known[:, 0], ranks, len(column_of))
    counts = [sample.num_written for sample in samples]
    return _Readings(
        torch.split(ranks, counts),
        torch.split(torch.minimum(p, q).sum(-1), counts),
        torch.split(coupled_acceptance(p, q, p_tail, q_tail), counts),
    )
