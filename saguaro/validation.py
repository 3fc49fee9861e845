"""Checks that every service applies alike to what a caller may choose."""

from __future__ import annotations

import math

from saguaro.errors import InvalidRequest
from saguaro.types import SamplingParams

MAX_TEMPERATURE = 100.0
_UINT32_END = 1 << 32
_UINT64_END = 1 << 64


def validate_sampling(sampling: SamplingParams) -> None:
    """Raise InvalidRequest, naming the field, the value and the bound, unless `sampling` can be served."""
    temperature, top_p, top_k = sampling.temperature, sampling.top_p, sampling.top_k
    if not (math.isfinite(temperature) and 0 <= temperature <= MAX_TEMPERATURE):
        raise InvalidRequest(
            "sampling.temperature", f"temperature is {temperature}; it must be from 0 (greedy) to {MAX_TEMPERATURE:g}"
        )
    if not (math.isfinite(top_p) and 0 < top_p <= 1):
        raise InvalidRequest("sampling.top_p", f"top_p is {top_p}; it must be above 0 and at most 1 (keeps all)")
    if not 0 <= top_k < _UINT32_END:
        raise InvalidRequest("sampling.top_k", f"top_k is {top_k}; it must be 0 (keeps all) or more, in 32 bits")
    if not 0 <= sampling.seed < _UINT64_END:
        raise InvalidRequest("sampling.seed", f"seed is {sampling.seed}; it must be from 0 to 2**64 - 1")
    if not 0 <= sampling.choice < _UINT32_END:
        raise InvalidRequest("sampling.choice", f"choice is {sampling.choice}; it must be from 0 to 2**32 - 1")
