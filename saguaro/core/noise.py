"""Noise that is a function of where it is used: a counter-based generator without state.

The target and the draft both add the noise of (seed, choice, position, token id) to their own log-probabilities, in
whatever batch, order or process they run. So the noise must be computable for one token of one position alone, with
the same bits everywhere. Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011) is that: ten rounds of integer arithmetic that turn a counter and a key into four random words.
"""

from __future__ import annotations

import enum
import functools

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class NoiseDomain(enum.IntEnum):
    """What a draw is for; draws of different domains are independent. Part of the output: never renumber."""

    HEAD = 0
    TAIL_BUCKET = 1
    TAIL = 2
    DRAFT = 3
    ACCEPTANCE = 4
    RESIDUAL = 5
    BONUS = 6


def philox_4x32(
    counter: Tensor,  # [n, 4] int64, each a uint32
    key: Tensor,  # [n, 2] int64, each a uint32
) -> Tensor:  # [n, 4] int64, each a uint32
    """Philox 4x32-10: four random words for each counter and key, as Random123 computes them."""
    return _philox(counter.T, key.T).T


def gumbel(
    seed: Tensor,  # [n] int64, the bits of a uint64
    choice: Tensor,  # [n] int64, a uint32
    position: Tensor,  # [n] int64, a uint32
    token_id: Tensor,  # [n] int64, a uint32
    domain: NoiseDomain | Tensor,  # one for all, or [n] int64
) -> Tensor:  # [n] float64
    """Standard Gumbel noise of each (seed, choice, position, token id, domain); tensors of length 1 stand for all.

    The words are the same on every device; the two logarithms may differ in the last bit of a float64. Always finite:
    the uniform is (m + 1/2) / 2^52 with 52 random bits m, which float64 holds exactly and which is never 0 or 1.
    """
    length = max(len(seed), len(choice), len(position), len(token_id))
    domains = domain if isinstance(domain, Tensor) else torch.full_like(token_id, int(domain))
    counter = torch.stack([word.expand(length) for word in (token_id, position, choice, domains)])
    key = torch.stack((seed & _WORD, (seed >> 32) & _WORD)).expand(2, length)
    words = _philox(counter, key)
    uniform = (((words[0] << 20) | (words[1] >> 12)).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _philox(
    counter: Tensor,  # [4, n]
    key: Tensor,  # [2, n]
) -> Tensor:  # [4, n]
    """The rounds. Words 0 and 2 are multiplied, 1 and 3 mixed in; each pair goes through an operation as one tensor."""
    multipliers, increments = _constants(counter.device)
    multiplied, mixed = counter[0::2], counter[1::2]
    key = key.clone()
    for _ in range(_ROUNDS):
        # int64 wraps, so the product has the 64 bits of the unsigned one. What the sign of the shift and the high half
        # of the other operands leave above 32 bits is masked once.
        product = (multiplied * multipliers).flip(0)
        multiplied = (product >> 32).bitwise_xor_(mixed).bitwise_xor_(key).bitwise_and_(_WORD)
        mixed = product
        key += increments
    mixed = mixed & _WORD
    return torch.stack((multiplied[0], mixed[0], multiplied[1], mixed[1]))


@functools.lru_cache
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:  # [2, 1] each
    """Multipliers and key increments, kept on the device: copying them there would wait for it."""
    multipliers = torch.tensor(_MULTIPLIERS, device=device).unsqueeze(1)
    increments = torch.tensor(_KEY_INCREMENTS, device=device).unsqueeze(1)
    return multipliers, increments
