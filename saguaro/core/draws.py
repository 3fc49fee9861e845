"""Draws by inversion: one uniform of counter-based noise picks one of many weights.

A race needs noise for every token; inversion needs one uniform a row and a running sum. It couples nothing, so it is
for what must be independent: the draws of rejection mode, each kind in a noise domain of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saguaro.core.noise import NoiseDomain, philox_4x32

_WORD = 0xFFFFFFFF


def uniform(
    seed: Tensor,  # [n] int64, the bits of a uint64
    choice: Tensor,  # [n] int64, a uint32
    position: Tensor,  # [n] int64, a uint32
    domain: NoiseDomain | Tensor,  # one for all, or [n] int64
) -> Tensor:  # [n] float64, never 0 or 1
    """A uniform for each (seed, choice, position, domain): (m + 1/2) / 2^52 with 52 random bits m, as in `gumbel`."""
    domains = domain if isinstance(domain, Tensor) else torch.full_like(position, int(domain))
    counter = torch.stack((torch.zeros_like(position), position, choice, domains), dim=1)
    key = torch.stack((seed & _WORD, (seed >> 32) & _WORD), dim=1)
    words = philox_4x32(counter, key)
    return (((words[:, 0] << 20) | (words[:, 1] >> 12)).double() + 0.5) * 2.0**-52


def pick(
    weights: Tensor,  # [rows, n] float64, none negative, a positive sum in every row
    uniforms: Tensor,  # [rows] float64 in (0, 1)
) -> Tensor:  # [rows] int64
    """The index that each uniform falls on: i with probability weights[i] / sum. Never one of weight 0."""
    running = weights.cumsum(-1)
    # Less than the total, since u <= 1 - 2^-53 and the product is rounded to nearest.
    threshold = uniforms.unsqueeze(1) * running[:, -1:]
    return torch.searchsorted(running, threshold, right=True).squeeze(1)
