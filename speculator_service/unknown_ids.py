"""Token ids that the target's embeddings have and the draft's do not: models of one tokenizer are padded differently.

The draft reads such a token as some other one. That may cost a guess; what it guesses is always a token that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saguaro.types import SamplingParams

_STAND_IN = 0


def readable(token_ids: Sequence[int], num_rows: int) -> Sequence[int]:
    """The ids as a model with `num_rows` embeddings can read them."""
    if max(token_ids, default=0) < num_rows:
        return token_ids
    return [token if token < num_rows else _STAND_IN for token in token_ids]


def applicable(sampling: SamplingParams, num_rows: int) -> SamplingParams:
    """The parameters without what they say of tokens that the model has no logits for."""
    stops = tuple(token for token in sampling.stop_token_ids if token < num_rows)
    biases = tuple(item for item in sampling.logit_bias if item[0] < num_rows)
    if len(stops) == len(sampling.stop_token_ids) and len(biases) == len(sampling.logit_bias):
        return sampling
    return replace(sampling, stop_token_ids=stops, logit_bias=biases)
