"""Checks that every service applies alike to what a caller may choose."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from saguaro.answers import AnswerRequest, ChatPrompt
from saguaro.errors import InvalidRequest, ModelNotFound
from saguaro.grammar_text import embedded_schemas
from saguaro.tool_validation import validate_messages, validate_tool_use
from saguaro.types import ClassPolicy, Constraint, ConstraintKind, ModelIdentity, SamplingParams, TrafficClass

MAX_TEMPERATURE = 100.0
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0  # logits stay far inside float32
MAX_PENALTY = 2.0
MAX_BIAS = 100.0
MAX_BIASED_TOKENS = 1024
MAX_STOP_TOKENS = 128
MAX_STOP_STRINGS, MAX_STOP_CHARACTERS = 16, 1024
MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 128
MAX_LOOKAHEAD = 16
# Compiling takes time, and stack, that grow with the text, some of it quadratically; these keep it below a second.
MAX_CONSTRAINT_BYTES = {
    ConstraintKind.JSON_SCHEMA: 65536,
    ConstraintKind.JSON_OBJECT: 0,
    ConstraintKind.REGEX: 8192,
    ConstraintKind.GRAMMAR: 16384,  # beside the JSON schemas in it
}
MAX_EMBEDDED_SCHEMA_BYTES, MAX_EMBEDDED_BYTES = 32768, 131072  # of one schema in a grammar, and of all
_UINT32_END = 1 << 32
_UINT64_END = 1 << 64


def validate_answer_request(request: AnswerRequest) -> None:
    """Raise InvalidRequest for what no model could serve, whatever its vocabulary and context."""
    sampling = request.sampling if request.seed is None else replace(request.sampling, seed=request.seed)
    validate_sampling(sampling)
    validate_max_tokens(request.max_tokens, sampling.min_tokens)
    validate_ignored_end(sampling.constraint, ignore_eos=request.ignore_eos)
    validate_choices(request.n, sampling.choice)
    validate_stop(request.stop)
    validate_logprobs(request.top_logprobs, wanted=request.logprobs or request.prompt_logprobs)
    if request.tool_use is not None:
        validate_tool_use(request.tool_use)
    if isinstance(request.prompt, ChatPrompt):
        validate_messages(request.prompt.messages)


def validate_policies(policies: Mapping[TrafficClass, ClassPolicy]) -> None:
    """Raise InvalidRequest, naming the field, the value and the bound, for bounds that bound nothing."""
    for traffic_class, policy in policies.items():
        path = f"policy.{traffic_class.name.lower()}"
        if policy.max_lookahead is not None:
            _within(
                f"{path}.max_lookahead", policy.max_lookahead, 0, MAX_LOOKAHEAD, f"from 0 (plain) to {MAX_LOOKAHEAD}"
            )
        threshold = policy.break_even_batch
        if threshold is not None and not threshold >= 0:
            raise _refused(f"{path}.break_even_batch", threshold, "0 (never waits) or more, infinite to wait always")


def validate_sampling(sampling: SamplingParams) -> None:
    """Raise InvalidRequest, naming the field, the value and the bound, unless `sampling` can be served."""
    _within("sampling.temperature", sampling.temperature, 0, MAX_TEMPERATURE, "from 0 (greedy) to 100")
    if not (math.isfinite(sampling.top_p) and 0 < sampling.top_p <= 1):
        raise _refused("sampling.top_p", sampling.top_p, "above 0 and at most 1 (keeps all)")
    _within("sampling.top_k", sampling.top_k, 0, _UINT32_END - 1, "0 (keeps all) or more, in 32 bits")
    _within("sampling.min_p", sampling.min_p, 0, 1, "from 0 (keeps all) to 1")
    _within(
        "sampling.repetition_penalty",
        sampling.repetition_penalty,
        MIN_REPETITION_PENALTY,
        MAX_REPETITION_PENALTY,
        "from 0.01 to 100; 1 is none",
    )
    for name, penalty in (("presence", sampling.presence_penalty), ("frequency", sampling.frequency_penalty)):
        _within(f"sampling.{name}_penalty", penalty, -MAX_PENALTY, MAX_PENALTY, "from -2 to 2; 0 is none")
    _within("sampling.seed", sampling.seed, 0, _UINT64_END - 1, "from 0 to 2**64 - 1")
    _within("sampling.choice", sampling.choice, 0, _UINT32_END - 1, "from 0 to 2**32 - 1")
    _within("sampling.min_tokens", sampling.min_tokens, 0, _UINT32_END - 1, "0 or more, in 32 bits")
    _at_most("sampling.stop_token_ids", len(sampling.stop_token_ids), MAX_STOP_TOKENS, "tokens")
    for token in sampling.stop_token_ids:
        _within("sampling.stop_token_ids", token, 0, _UINT32_END - 1, "token ids, from 0 to 2**32 - 1")
    _validate_logit_bias(sampling.logit_bias)
    if sampling.cached_scale is not None:
        _within("sampling.cached_scale", sampling.cached_scale, 0, 1, "from 0 to 1; 1 leaves the draft as it is")
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
    if constraint.kind is ConstraintKind.GRAMMAR and size > limit:
        size -= _schema_bytes(field, constraint.text)
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


def _schema_bytes(field: str, grammar: str) -> int:
    """Bytes of the JSON schemas in a grammar, which have bounds of their own: they compile in another way."""
    if len(grammar) > MAX_CONSTRAINT_BYTES[ConstraintKind.GRAMMAR] + MAX_EMBEDDED_BYTES:
        return 0
    sizes = [len(grammar[place].encode()) for place in embedded_schemas(grammar)]
    for size, limit, what in (
        (max(sizes, default=0), MAX_EMBEDDED_SCHEMA_BYTES, "a JSON schema of {}"),
        (sum(sizes), MAX_EMBEDDED_BYTES, "JSON schemas of {} in all"),
    ):
        if size > limit:
            raise InvalidRequest(field, f"{field} has {what.format(f'{size} bytes')}; at most {limit} can be served")
    return sum(sizes)


def _validate_logit_bias(logit_bias: Sequence[tuple[int, float]]) -> None:
    field = "sampling.logit_bias"
    _at_most(field, len(logit_bias), MAX_BIASED_TOKENS, "tokens")
    seen: set[int] = set()
    for token, bias in logit_bias:
        if not 0 <= token < _UINT32_END or token in seen:
            what = "twice" if token in seen else "no token id from 0 to 2**32 - 1"
            raise InvalidRequest(field, f"logit_bias has token {token}, {what}; each token may have one bias")
        if not (math.isfinite(bias) and -MAX_BIAS <= bias <= MAX_BIAS):
            raise InvalidRequest(field, f"logit_bias of token {token} is {bias}; it must be from -100 to 100")
        seen.add(token)


def validate_sampled_tokens(sampling: SamplingParams, served: ModelIdentity) -> None:
    """Raise InvalidRequest for a bias or a stop token that the model has no token for."""
    validate_vocabulary("sampling.logit_bias", [token for token, _ in sampling.logit_bias], served)
    validate_vocabulary("sampling.stop_token_ids", sampling.stop_token_ids, served)


def validate_max_tokens(max_tokens: int | None, min_tokens: int = 0) -> None:
    """Raise InvalidRequest for less than one token, or less than the least; None is up to the context limit."""
    if max_tokens is None:
        return
    if not 1 <= max_tokens < _UINT32_END:
        raise InvalidRequest(
            "max_tokens",
            f"max_tokens is {max_tokens}; it must be at least 1, in 32 bits, or absent for up to the context limit",
        )
    if min_tokens > max_tokens:
        raise InvalidRequest(
            "sampling.min_tokens", f"min_tokens is {min_tokens}; it must be at most max_tokens, which is {max_tokens}"
        )


def validate_ignored_end(constraint: Constraint | None, *, ignore_eos: bool) -> None:
    """Raise InvalidRequest where a constrained output is to go on past its end."""
    if constraint is not None and ignore_eos:
        kind = constraint.kind.name.lower()
        raise InvalidRequest(
            "ignore_eos", f"ignore_eos is true beside {kind}; what that describes has an end, so leave one out"
        )


def validate_logprobs(top_logprobs: int, *, wanted: bool) -> None:
    """Raise InvalidRequest for too many alternatives, or for alternatives to logprobs that are not `wanted`."""
    _within("top_logprobs", top_logprobs, 0, MAX_TOP_LOGPROBS, f"from 0 to {MAX_TOP_LOGPROBS}")
    if top_logprobs and not wanted:
        raise InvalidRequest(
            "top_logprobs", f"top_logprobs is {top_logprobs}, but neither logprobs nor prompt_logprobs are asked for"
        )


def validate_choices(n: int, first: int) -> None:
    """Raise InvalidRequest unless `n` choices, numbered from `first` on, can be served."""
    _within("n", n, 1, MAX_CHOICES, f"from 1 to {MAX_CHOICES}")
    _within("sampling.choice", first, 0, _UINT32_END - n, f"at most 2**32 - {n}, so that {n} choices have numbers")


def validate_stop(stop: Sequence[str]) -> None:
    """Raise InvalidRequest for too many stop strings, or one that is empty or too long."""
    _at_most("stop", len(stop), MAX_STOP_STRINGS, "strings")
    for text in stop:
        if not 1 <= len(text) <= MAX_STOP_CHARACTERS:
            raise InvalidRequest(
                "stop", f"a stop string has {len(text)} characters; it must have from 1 to {MAX_STOP_CHARACTERS}"
            )


def validate_model(name: str, served: ModelIdentity) -> None:
    """Raise ModelNotFound unless `name` is served here; an empty name takes what is."""
    if name not in ("", served.name):
        raise ModelNotFound(f'no model "{name}" here; served is "{served.name}"')


def validate_prompt(prompt: Sequence[int], served: ModelIdentity, *, num_rows: int | None = None) -> None:
    """Raise InvalidRequest for a prompt that is empty, too long, or not of this vocabulary (`validate_vocabulary`)."""
    if not prompt:
        raise InvalidRequest("prompt", "the prompt is empty; give at least 1 token")
    limit = served.context_limit_tokens
    if len(prompt) >= limit:
        raise InvalidRequest(
            "prompt",
            f"the prompt has {len(prompt)} tokens; the context limit is {limit}, "
            "and at least 1 token must be left for the answer",
        )
    validate_vocabulary("prompt", prompt, served, num_rows=num_rows)


def validate_vocabulary(
    field: str, token_ids: Sequence[int], served: ModelIdentity, *, num_rows: int | None = None
) -> None:
    """Raise InvalidRequest for an id that the model has no token for; with `num_rows`, one that it cannot compute: its
    embeddings may be more than the tokens, and an older text may hold such ids.
    """
    bound = served.usable_vocabulary_tokens if num_rows is None else num_rows
    if token_ids and max(token_ids) >= bound:
        position = next(i for i, token_id in enumerate(token_ids) if token_id >= bound)
        raise InvalidRequest(
            field, f"token id {token_ids[position]} at position {position} is not in the vocabulary of {bound} tokens"
        )


def _within(field: str, value: float, least: float, most: float, bounds: str) -> None:
    # NaN is within nothing. No math.isfinite: an integer from JSON may be too large for a float.
    if not least <= value <= most:
        raise _refused(field, value, bounds)


def _at_most(field: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidRequest(field, f"{field.rpartition('.')[2]} has {count} {what}; it may have at most {most}")


def _refused(field: str, value: float, bounds: str) -> InvalidRequest:
    name = field.rpartition(".")[2]
    return InvalidRequest(field, f"{name} is {value}; it must be {bounds}")
