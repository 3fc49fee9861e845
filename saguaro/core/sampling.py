"""How the next token is chosen: processed probabilities p, and a race that draws from them with counter-based noise.

The token of a row is argmax over t of log p(t) + gumbel(t), which has law p exactly (the Gumbel-max trick). Noise for a
whole vocabulary is dear, so tokens race in two heats: those with p >= HEAD_PROBABILITY, the head, each with noise of
its own, against one bucket that stands for all others with their total mass; only if the bucket wins do its tokens
race among themselves. By max-stability of the Gumbel law this is p again, for any threshold.

Everything is a function of a row's logits and parameters alone: the other rows of the batch do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saguaro.core.noise import NoiseDomain, gumbel
from saguaro.types import SamplingParams

HEAD_PROBABILITY = 1e-5
# Below this a temperature is 0: the law is the argmax but for ties, and logits over temperature would leave float32.
LEAST_TEMPERATURE = 1e-5
# Top-p sorts only this many of the likeliest tokens; rows whose mass is spread wider are sorted wholly.
_SHORT_SORT = 256
# A maximum is found several times faster than the largest few, so these are searched by the maxima of such blocks.
_BLOCK = 64


@dataclass(frozen=True, slots=True, eq=False)
class RowSampling:
    """Parameters of each row of a batch as tensors [rows] on one device, and what holds for the batch as a whole.

    Rows at temperature 0 are kept with temperature 1 and no truncation; `is_random` tells them. The plain values say
    what can be skipped without asking the device.
    """

    is_random: Tensor  # bool: temperature > 0
    temperature: Tensor  # float32
    top_p: Tensor  # float32, 1 keeps all
    top_k: Tensor  # int64, 0 keeps all
    seed: Tensor  # int64, the bits of the uint64
    choice: Tensor  # int64
    position: Tensor  # int64, absolute index in the sequence of the token to be chosen
    any_random: bool
    all_random: bool
    any_top_p: bool
    max_top_k: int

    @classmethod
    def build(
        cls, params: Sequence[SamplingParams], positions: Sequence[int], device: torch.device | str = "cpu"
    ) -> RowSampling:
        """One element of `params` and `positions` a row, else ValueError. OverflowError for a seed outside uint64."""
        if len(params) != len(positions):
            raise ValueError(f"{len(params)} parameters for {len(positions)} positions")
        is_random = [row.temperature >= LEAST_TEMPERATURE for row in params]
        temperature = [row.temperature if random else 1.0 for row, random in zip(params, is_random, strict=True)]
        top_p = [row.top_p if random else 1.0 for row, random in zip(params, is_random, strict=True)]
        top_k = [row.top_k if random else 0 for row, random in zip(params, is_random, strict=True)]
        seeds = [int.from_bytes(row.seed.to_bytes(8, "little"), "little", signed=True) for row in params]
        return cls(
            is_random=torch.tensor(is_random, dtype=torch.bool, device=device),
            temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
            top_p=torch.tensor(top_p, dtype=torch.float32, device=device),
            top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
            seed=torch.tensor(seeds, dtype=torch.int64, device=device),
            choice=torch.tensor([row.choice for row in params], dtype=torch.int64, device=device),
            position=torch.tensor(positions, dtype=torch.int64, device=device),
            any_random=any(is_random),
            all_random=all(is_random),
            any_top_p=any(value < 1 for value in top_p),
            max_top_k=max(top_k, default=0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RankedCandidates:
    """Guesses of each row's token, best first: `token_ids[i, :num_valid[i]]`, distinct; what follows means nothing."""

    token_ids: Tensor  # [rows, count] int64
    num_valid: Tensor  # [rows] int64


def processed_log_probs(
    logits: Tensor,  # [rows, vocab]
    rows: RowSampling,
) -> Tensor:  # [rows, vocab] float32
    """log p: temperature, then top-k, then top-p, renormalised; removed tokens -inf; one-hot at temperature 0.

    Top-k keeps ties with the k-th token; top-p keeps a token iff the mass of strictly likelier ones is below top_p, so
    ties with the last one stay too, and the likeliest always stays.
    """
    log_probs = _truncated(logits, rows).log_softmax(-1)
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
    probs = _truncated(logits, rows).softmax(-1)
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
    probs = _truncated(logits, rows).softmax(-1)
    likeliest = _topk(probs, count)[0][:, -1:]
    entered = (probs > 0) & ((probs >= likeliest) | (probs >= head_probability) & rows.is_random.unsqueeze(1))
    race = _Race.run(logits, probs, rows, head_probability, entered)
    score = torch.where(rows.is_random[race.row], race.score, logits[race.row, race.token_id].double())
    return _best_of_each_row(race, score, num_entered=entered.sum(-1), count=count)


def _truncated(logits: Tensor, rows: RowSampling) -> Tensor:  # [rows, vocab] float32
    """Logits over temperature, -inf for what top-k and top-p remove."""
    scaled = logits.float()
    if rows.any_random:
        scaled = scaled / rows.temperature.unsqueeze(1)
    if rows.max_top_k > 0:
        best = _topk(scaled, rows.max_top_k)[0]
        kth = best.gather(1, (rows.top_k - 1).clamp(0, best.shape[1] - 1).unsqueeze(1))
        scaled = scaled.masked_fill((scaled < kth) & (rows.top_k > 0).unsqueeze(1), -torch.inf)
    if rows.any_top_p:
        probs = scaled.softmax(-1)
        scaled = scaled.masked_fill(probs < _least_kept_by_top_p(probs, rows.top_p).unsqueeze(1), -torch.inf)
    return scaled


def _least_kept_by_top_p(probs: Tensor, top_p: Tensor) -> Tensor:  # [rows] float32
    """The probability from which top-p keeps tokens."""
    least, mass = _least_kept_of_sorted(probs.topk(min(_SHORT_SORT, probs.shape[1])).values, top_p)
    unfinished = (mass < top_p) & (top_p < 1)
    if unfinished.any():
        ordered = probs[unfinished].sort(descending=True).values
        least[unfinished], _ = _least_kept_of_sorted(ordered, top_p[unfinished])
    return least.masked_fill(top_p >= 1, 0.0)


def _least_kept_of_sorted(ordered: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:  # [rows] and [rows]
    """Over probabilities in descending order: the least one before which less than top_p lies, and the mass of all."""
    mass = ordered.double().cumsum(-1)
    # The likeliest is kept whatever top_p is, so it is left out of the count; the last kept index is then the count.
    last = (mass[:, :-1] < top_p.unsqueeze(1)).sum(-1, keepdim=True)
    return ordered.gather(1, last).squeeze(1), mass[:, -1]


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
    values, token_ids = _topk(logits, count)
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


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:  # [rows, k] and [rows, k] int64
    """The k = min(count, vocab) largest of [rows, vocab] in descending order, and their ids; ties in any order."""
    num_rows, vocab = values.shape
    if vocab % _BLOCK or count * _BLOCK > vocab // 2:
        best = values.topk(min(count, vocab))
        return best.values, best.indices
    # The k largest lie in the k blocks with the largest maxima.
    blocks = values.reshape(num_rows, -1, _BLOCK)
    chosen = blocks.amax(-1).topk(count).indices  # [rows, k]
    best = blocks[torch.arange(num_rows, device=values.device).unsqueeze(1), chosen].flatten(1).topk(count)
    return best.values, chosen.gather(1, best.indices // _BLOCK) * _BLOCK + best.indices % _BLOCK
