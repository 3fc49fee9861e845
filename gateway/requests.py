"""From what a client asked to what a verifier can be asked: pure checks, each naming what was given and the bound."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from saguaro.answers import AnswerRequest
from saguaro.errors import InvalidRequest
from saguaro.types import GenerationRequest, SamplingParams, TokenIds


@dataclass(frozen=True, slots=True)
class Limits:
    """What this deployment serves of what its model could; None sets no limit."""

    max_concurrent: int  # answers in flight, each choice one
    max_prompt_tokens: int | None = None
    max_answer_tokens: int | None = None

    def bounded(self, request: AnswerRequest) -> AnswerRequest:
        """The request; one without max_tokens gets the limit. Raises InvalidRequest for more."""
        most = self.max_answer_tokens
        if most is None:
            return request
        if request.max_tokens is not None and request.max_tokens > most:
            raise InvalidRequest(
                "max_tokens", f"max_tokens is {request.max_tokens}; this deployment takes at most {most}"
            )
        return request if request.max_tokens is not None else replace(request, max_tokens=most)

    def check_prompt(self, prompt: TokenIds) -> None:
        """Raises InvalidRequest for a prompt that is too long here, whatever the model's context."""
        most = self.max_prompt_tokens
        if most is not None and len(prompt) > most:
            raise InvalidRequest("prompt", f"the prompt has {len(prompt)} tokens; this deployment takes at most {most}")


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
