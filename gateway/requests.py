"""From what a client asked to what a verifier can be asked: pure checks, each naming what was given and the bound."""

from __future__ import annotations

import secrets

from saguaro.answers import AnswerRequest
from saguaro.errors import InvalidRequest, ModelNotFound
from saguaro.types import GenerationRequest, ModelIdentity, SamplingParams, TokenIds
from saguaro.validation import validate_sampling


def check_model(name: str, served: ModelIdentity) -> None:
    """An empty name takes the model that is served. Raises ModelNotFound."""
    if name not in ("", served.name):
        raise ModelNotFound(f'no model "{name}"; this gateway serves "{served.name}"')


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
    if request.max_tokens == 0:
        raise InvalidRequest("max_tokens", "max_tokens is 0; it must be at least 1, or absent for up to the limit")
    return sampling


def check_prompt(prompt: TokenIds, served: ModelIdentity) -> None:
    """Raises InvalidRequest for a prompt that is empty, too long, or not of this vocabulary."""
    if not prompt:
        raise InvalidRequest("prompt", "the prompt is empty; give at least 1 token")
    limit = served.context_limit_tokens
    if len(prompt) >= limit:
        raise InvalidRequest(
            "prompt",
            f"prompt has {len(prompt)} tokens; the context limit is {limit}, "
            "and at least 1 token must be left for the answer",
        )
    check_vocabulary("prompt", prompt, served)


def check_vocabulary(field: str, token_ids: TokenIds, served: ModelIdentity) -> None:
    """Raises InvalidRequest for an id that the model has no token for."""
    bound = served.usable_vocabulary_tokens
    if token_ids and max(token_ids) >= bound:
        position = next(i for i, token_id in enumerate(token_ids) if token_id >= bound)
        raise InvalidRequest(
            field, f"token id {token_ids[position]} at position {position} is not in the vocabulary of {bound} tokens"
        )


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
