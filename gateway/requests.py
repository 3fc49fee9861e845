"""From what a client asked to what a verifier can be asked: pure checks, each naming what was given and the bound."""

from __future__ import annotations

import secrets
from dataclasses import replace

from saguaro.answers import AnswerRequest
from saguaro.types import GenerationRequest, SamplingParams, TokenIds


def resolve_sampling(request: AnswerRequest) -> SamplingParams:
    """The request's parameters, with a random seed where it has none."""
    # 63 bits: some JSON readers keep integers in a signed 64-bit type.
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return replace(request.sampling, seed=seed)


def generation_requests(
    request: AnswerRequest, request_id: str, prompt: TokenIds, sampling: SamplingParams
) -> list[GenerationRequest]:
    """What the verifier is asked, one a choice; the model stays open, so that a renamed verifier still serves."""
    return [
        GenerationRequest(
            request_id=request_id if index == 0 else f"{request_id}/{index}",
            prompt=prompt,
            sampling=sampling if index == 0 else replace(sampling, choice=sampling.choice + index),
            max_tokens=request.max_tokens,
            ignore_eos=request.ignore_eos,
            disable_speculation=request.disable_speculation,
            include_rounds=request.include_rounds,
            logprobs=request.logprobs,
            prompt_logprobs=request.prompt_logprobs and index == 0,
            top_logprobs=request.top_logprobs,
            traffic_class=request.traffic_class,
        )
        for index in range(request.n)
    ]
