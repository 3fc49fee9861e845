"""From what a client asked to what a verifier can be asked: pure checks, each naming what was given and the bound."""

from __future__ import annotations

import secrets

from saguaro.answers import AnswerRequest
from saguaro.types import GenerationRequest, SamplingParams, TokenIds
from saguaro.validation import validate_max_tokens, validate_sampling


def resolve_sampling(request: AnswerRequest) -> SamplingParams:
    """Checked parameters, with a random seed where the request has none. Raises InvalidRequest."""
    sampling = SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        # 63 bits: some JSON readers keep integers in a signed 64-bit type.
        seed=secrets.randbits(63) if request.seed is None else request.seed,
        choice=request.choice,
    )
    validate_sampling(sampling)
    validate_max_tokens(request.max_tokens)
    return sampling


def generation_request(
    request: AnswerRequest, request_id: str, prompt: TokenIds, sampling: SamplingParams
) -> GenerationRequest:
    """What the verifier is asked; the model stays open, so that a renamed verifier still serves."""
    return GenerationRequest(
        request_id=request_id,
        prompt=prompt,
        sampling=sampling,
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        disable_speculation=request.disable_speculation,
        include_rounds=request.include_rounds,
    )
