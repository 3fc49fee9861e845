"""How the next token is chosen: processed probabilities p, and a race that draws from them with counter-based noise.

The token of a row is argmax over t of log p(t) + gumbel(t), which has law p exactly (the Gumbel-max trick). Noise for a
whole vocabulary is dear, so tokens race in two heats: those with p >= HEAD_PROBABILITY, the head, each with noise of
its own, against one bucket that stands for all others with their total mass; only if the bucket wins do its tokens
race among themselves. By max-stability of the Gumbel law this is p again, for any threshold.

Everything is a function of a row's logits and parameters alone: the other rows of the batch do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.noise import NoiseDomain, gumbel
from saguaro.core.row_sampling import RowSampling
from saguaro.core.truncation import topk, truncated

__all__ = ["HEAD_PROBABILITY", "RankedCandidates", "RowSampling", "processed_log_probs", "race", "ranked_candidates"]

HEAD_PROBABILITY = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class RankedCandidates:
    """Guesses of each row's token, best first: `token_ids[i, :num_valid[i]]`, distinct; what follows means nothing."""

    token_ids: Tensor  # [rows, count] int64
    num_valid: Tensor  # [rows] int64


def processed_log_probs(
    logits: Tensor,  # [rows, vocab]
    rows: RowSampling,
) -> Tensor:  # [rows, vocab] float32
    """log p of each row, the one distribution that tokens are chosen by: `truncated`, renormalised; -inf for what was
    removed; one-hot at temperature 0. What depends on a sequence's own tokens is in the logits by then: see
    `saguaro.core.penalties`.
    """
    log_probs = truncated(logits, rows).log_softmax(-1)
    if rows.all_random:
        return log_probs
    greedy = torch.full_like(log_probs, -torch.inf).scatter_(1, logits.argmax(-1, keepdim=True), 0.0)
    return torch.where(rows.is_random.unsqueeze(1), log_probs, greedy)


def race(
    logits: Tensor,  # [rows, vocab], at least one finite value a row
    rows: RowSampling,
    head_probability: float = HEAD_PROBABILITY,
) -> Tensor:  # [rows] int64
    """The token of each row: the race's winner, or the first argmax at temperature 0.

    `head_probability` changes which noise a token gets, so draft and target must agree on it; the law is p for any.
    """
    if not rows.any_random:
        return _first_argmax(logits)
    probs = truncated(logits, rows).softmax(-1)
    head = (probs >= head_probability) & rows.is_random.unsqueeze(1)
    return _Race.run(logits, probs, rows, head_probability, entered=head).winners


def ranked_candidates(
    logits: Tensor,  # [rows, vocab], at least one finite value a row
    rows: RowSampling,
    count: int,
    head_probability: float = HEAD_PROBABILITY,
) -> RankedCandidates:
    """The `count` best guesses of what another model's race, with the same noise, chooses here.

    First the row's own `race`, always. Then by log p + noise, over the head and at least the `count` likeliest tokens
    (at temperature 0 by logits); fewer where p has fewer tokens. Tokens of the tail rank with the noise that they have
    in the head: if the other model chooses one, it is most likely one that it holds likelier than we do.
    """
    if not rows.any_random:
        return _ranked_by_logits(logits, count)
    probs = truncated(logits, rows).softmax(-1)
    likeliest = topk(probs, count)[0][:, -1:]
    entered = (probs > 0) & ((probs >= likeliest) | (probs >= head_probability) & rows.is_random.unsqueeze(1))
    race = _Race.run(logits, probs, rows, head_probability, entered)
    score = torch.where(rows.is_random[race.row], race.score, logits[race.row, race.token_id].double())
    return _best_of_each_row(race, score, num_entered=entered.sum(-1), count=count)


@dataclass(frozen=True, slots=True, eq=False)
class _Race:
    """A race's winners, and the score of every (row, token) pair that was looked at."""

    winners: Tensor  # [rows] int64
    row: Tensor  # [pairs] int64, ascending
    token_id: Tensor  # [pairs] int64
    score: Tensor  # [pairs] float64: log p + noise of the head

    @classmethod
    def run(
        cls,
        logits: Tensor,  # [rows, vocab]
        probs: Tensor,  # [rows, vocab], spent: the head is erased from it
        rows: RowSampling,
        head_probability: float,
        entered: Tensor,  # [rows, vocab] bool: whom to score; of rows with temperature > 0 at least the head
    ) -> _Race:
        row, token_id = entered.nonzero(as_tuple=True)
        entered_probs = probs[row, token_id]
        # One call of the generator for the tokens and, after them, each row's bucket.
        num_rows = len(probs)
        bucket_row = torch.arange(num_rows, device=row.device)
        noise = _noise(
            rows,
            torch.cat((row, bucket_row)),
            torch.cat((token_id, torch.zeros_like(bucket_row))),
            torch.cat((torch.full_like(row, NoiseDomain.HEAD), torch.full_like(bucket_row, NoiseDomain.TAIL_BUCKET))),
        )
        score = entered_probs.double().log() + noise[: len(row)]

        # Rows at temperature 0 do not race and keep this.
        winners = torch.zeros_like(bucket_row) if rows.all_random else _first_argmax(logits)
        in_head = (entered_probs >= head_probability) & rows.is_random[row]
        winners, best = _heat(winners, row, token_id, score.masked_fill(~in_head, -torch.inf))

        tail_probs = probs.masked_fill_(probs >= head_probability, 0.0)
        bucket = _row_sums(tail_probs).double().log() + noise[len(row) :]
        bucket_won = (bucket > best) & rows.is_random
        if bucket_won.any():
            won_row = bucket_won.nonzero().squeeze(1)
            index, tail_id = tail_probs[won_row].nonzero(as_tuple=True)
            tail_row = won_row[index]
            tail_noise = _noise(rows, tail_row, tail_id, NoiseDomain.TAIL)
            winners, _ = _heat(winners, tail_row, tail_id, tail_probs[tail_row, tail_id].double().log() + tail_noise)
        return cls(winners, row, token_id, score)


def _heat(
    winners: Tensor,  # [rows] int64, kept where no one scores
    row: Tensor,  # [pairs]
    token_id: Tensor,  # [pairs]
    score: Tensor,  # [pairs] float64, -inf for who does not take part
) -> tuple[Tensor, Tensor]:  # [rows] int64 and [rows] float64
    """Winner of each row, the lowest id on a tie, and its score, -inf where there is none."""
    best = torch.full_like(winners, -torch.inf, dtype=torch.float64).scatter_reduce(0, row, score, "amax")
    won = (score == best[row]) & (score > -torch.inf)
    return winners.scatter_reduce(0, row[won], token_id[won], "amin", include_self=False), best


def _noise(rows: RowSampling, row: Tensor, token_id: Tensor, domain: NoiseDomain | Tensor) -> Tensor:
    """Noise of each (row, token) pair, [pairs] float64."""
    return gumbel(rows.seed[row], rows.choice[row], rows.position[row], token_id, domain)


def _row_sums(values: Tensor) -> Tensor:  # [rows]
    """Sums whose rounding does not depend on the number of rows: torch splits a single row's sum over threads."""
    if len(values) == 1:
        return values.expand(2, -1).sum(-1)[:1]
    return values.sum(-1)


def _best_of_each_row(race: _Race, score: Tensor, num_entered: Tensor, count: int) -> RankedCandidates:
    """The winner, then the best by score of all who entered."""
    row, token_id = race.row, race.token_id
    # A table with the winner in column 0. Pairs come in the order of their rows, so their columns are 1, 2, ...
    column = 1 + torch.arange(len(row), device=row.device) - (num_entered.cumsum(0) - num_entered)[row]
    width = 1 + int(num_entered.max())
    scores = torch.full((len(race.winners), width), -torch.inf, dtype=torch.float64, device=row.device)
    scores[:, 0] = torch.inf
    scores[row, column] = score.masked_fill(token_id == race.winners[row], -torch.inf)
    token_ids = race.winners.unsqueeze(1).repeat(1, width)
    token_ids[row, column] = token_id
    best = scores.topk(min(count, width))
    return RankedCandidates(_padded(token_ids.gather(1, best.indices), count), (best.values > -torch.inf).sum(-1))


def _ranked_by_logits(logits: Tensor, count: int) -> RankedCandidates:
    values, token_ids = topk(logits, count)
    # Among equal logits topk takes any; the first place belongs to the first argmax, as in `race`.
    winners = _first_argmax(logits)
    if not torch.equal(token_ids[:, 0], winners):
        token_ids = _with_first(token_ids, winners.unsqueeze(1))
    return RankedCandidates(_padded(token_ids, count), values.isfinite().sum(-1))


def _with_first(token_ids: Tensor, winners: Tensor) -> Tensor:  # [rows, count]
    """The same ids in their order, but with the winners [rows, 1] first; where one is missing, the last id goes."""
    missing = ~(token_ids == winners).any(-1, keepdim=True)
    token_ids[:, -1:] = torch.where(missing, winners, token_ids[:, -1:])
    return token_ids.gather(1, (token_ids != winners).long().argsort(dim=1, stable=True))


def _padded(token_ids: Tensor, count: int) -> Tensor:  # [rows, count]
    if token_ids.shape[1] == count:
        return token_ids
    return torch.nn.functional.pad(token_ids, (0, count - token_ids.shape[1]))


def _first_argmax(values: Tensor) -> Tensor:  # [rows] int64
    """argmax over [rows, vocab], the lowest id on a tie."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(-1))  # 3 to 20 times as fast as torch's, and the same
    return values.argmax(-1)
