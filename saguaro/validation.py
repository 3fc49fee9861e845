"""Checks that every service applies alike to what a caller may choose."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from saguaro.errors import InvalidRequest, ModelNotFound
from saguaro.types import Constraint, ConstraintKind, ModelIdentity, SamplingParams

MAX_TEMPERATURE = 100.0
# Compiling takes time, and stack, that grow with the text, some of it quadratically; these keep it below a second.
MAX_CONSTRAINT_BYTES = {
    ConstraintKind.JSON_SCHEMA: 65536,
    ConstraintKind.JSON_OBJECT: 0,
    ConstraintKind.REGEX: 8192,
    ConstraintKind.GRAMMAR: 16384,
}
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
    if sampling.constraint is not None:
        validate_constraint(sampling.constraint)


def constraint_field(constraint: Constraint) -> str:
    """The request's field that holds it, as errors name it: "sampling.regex"."""
    return f"sampling.{constraint.kind.name.lower()}"


def validate_constraint(constraint: Constraint) -> None:
    """Raise InvalidRequest for a text that is empty, too long, or no JSON where it must be.

    Whether the text means something, compiling finds out.
    """
    field, limit = constraint_field(constraint), MAX_CONSTRAINT_BYTES[constraint.kind]
    size = len(constraint.text.encode())
    if size > limit:
        raise InvalidRequest(field, f"{field} has {size} bytes; at most {limit} can be served")
    if limit and not constraint.text.strip():
        raise InvalidRequest(field, f"{field} is empty; leave the field out for unconstrained output")
    if constraint.kind is ConstraintKind.JSON_SCHEMA:
        try:
            schema = json.loads(constraint.text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(field, f"{field} is not JSON: {error}") from error
        if not isinstance(schema, dict | bool):
            raise InvalidRequest(
                field, f"{field} is a JSON {type(schema).__name__}; a schema is an object, true or false"
            )


def validate_max_tokens(max_tokens: int | None) -> None:
    """Raise InvalidRequest for less than one token; None is up to the context limit."""
    if max_tokens is not None and max_tokens < 1:
        raise InvalidRequest(
            "max_tokens", f"max_tokens is {max_tokens}; it must be at least 1, or absent for up to the context limit"
        )


def validate_model(name: str, served: ModelIdentity) -> None:
    """Raise ModelNotFound unless `name` is served here; an empty name takes what is."""
    if name not in ("", served.name):
        raise ModelNotFound(f'no model "{name}" here; served is "{served.name}"')


def validate_prompt(prompt: Sequence[int], served: ModelIdentity) -> None:
    """Raise InvalidRequest for a prompt that is empty, too long, or not of this vocabulary."""
    if not prompt:
        raise InvalidRequest("prompt", "the prompt is empty; give at least 1 token")
    limit = served.context_limit_tokens
    if len(prompt) >= limit:
        raise InvalidRequest(
            "prompt",
            f"the prompt has {len(prompt)} tokens; the context limit is {limit}, "
            "and at least 1 token must be left for the answer",
        )
    validate_vocabulary("prompt", prompt, served)


def validate_vocabulary(field: str, token_ids: Sequence[int], served: ModelIdentity) -> None:
    """Raise InvalidRequest for an id that the model has no token for."""
    bound = served.usable_vocabulary_tokens
    if token_ids and max(token_ids) >= bound:
        position = next(i for i, token_id in enumerate(token_ids) if token_id >= bound)
        raise InvalidRequest(
            field, f"token id {token_ids[position]} at position {position} is not in the vocabulary of {bound} tokens"
        )
