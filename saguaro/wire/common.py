"""Types that several services share, to and from the contract."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from saguaro.errors import Incompatible, InvalidRequest
from saguaro.types import (
    AcceptanceMode,
    Constraint,
    ConstraintKind,
    LookupResult,
    ModelIdentity,
    RoundReport,
    SamplingParams,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
)
from saguaro.v1 import common_pb2

Kind = TypeVar("Kind", bound=enum.IntEnum)
Item = TypeVar("Item")
_MOST_ITEMS = 1 << 20
_PROVENANCE = {item.value: item for item in TokenProvenance}


def items_of(field: str, items: Sequence[Item]) -> tuple[Item, ...]:
    """What a client listed. Raises InvalidRequest for so much that to take it apart would hold others up."""
    if len(items) > _MOST_ITEMS:
        raise InvalidRequest(field, f"{field} has {len(items)} items; at most {_MOST_ITEMS} are taken")
    return tuple(items)


def enum_from_proto(kind: type[Kind], value: int) -> Kind:
    """The member with the contract's number; Incompatible for a number that this version does not know."""
    try:
        return kind(value)
    except ValueError:
        raise _unknown(kind, value) from None


def _unknown(kind: type[enum.IntEnum], value: int) -> Incompatible:
    known = ", ".join(f"{member.name}={member.value}" for member in kind)
    return Incompatible(f"the peer sent {kind.__name__} {value}; this version knows {known}")


def sampling_to_proto(sampling: SamplingParams, *, with_seed: bool = True) -> common_pb2.SamplingParams:
    """`with_seed` False leaves the seed to the service that receives the message."""
    message = common_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        choice=sampling.choice,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=[common_pb2.LogitBias(token_id=token, bias=bias) for token, bias in sampling.logit_bias],
        min_tokens=sampling.min_tokens,
        stop_token_ids=sampling.stop_token_ids,
        acceptance=cast(common_pb2.AcceptanceMode, int(sampling.acceptance or 0)),
        cached_scale=sampling.cached_scale,
    )
    if with_seed:
        message.seed = sampling.seed
    if sampling.constraint is not None:
        _put_constraint(message, sampling.constraint)
    return message


def _put_constraint(message: common_pb2.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case ConstraintKind.JSON_SCHEMA:
            message.json_schema = constraint.text
        case ConstraintKind.JSON_OBJECT:
            message.json_object.SetInParent()
        case ConstraintKind.REGEX:
            message.regex = constraint.text
        case ConstraintKind.GRAMMAR:
            message.grammar = constraint.text


def _constraint_from_proto(message: common_pb2.SamplingParams) -> Constraint | None:
    match message.WhichOneof("constraint"):
        case "json_schema":
            return Constraint(ConstraintKind.JSON_SCHEMA, message.json_schema)
        case "json_object":
            return Constraint(ConstraintKind.JSON_OBJECT)
        case "regex":
            return Constraint(ConstraintKind.REGEX, message.regex)
        case "grammar":
            return Constraint(ConstraintKind.GRAMMAR, message.grammar)
    return None


def sampling_from_proto(message: common_pb2.SamplingParams) -> tuple[SamplingParams, bool]:
    """The parameters, not validated, and whether the message gave a seed; without one the seed is 0.

    InvalidRequest for an acceptance mode that this version does not know.
    """
    sampling = SamplingParams(
        temperature=message.temperature,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        top_k=message.top_k,
        seed=message.seed,
        choice=message.choice,
        min_p=message.min_p,
        repetition_penalty=message.repetition_penalty if message.HasField("repetition_penalty") else 1.0,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=tuple((item.token_id, item.bias) for item in items_of("logit_bias", message.logit_bias)),
        min_tokens=message.min_tokens,
        stop_token_ids=items_of("stop_token_ids", message.stop_token_ids),
        constraint=_constraint_from_proto(message),
        acceptance=_acceptance_from_proto(message.acceptance),
        cached_scale=message.cached_scale if message.HasField("cached_scale") else None,
    )
    return sampling, message.HasField("seed")


def _acceptance_from_proto(value: int) -> AcceptanceMode | None:
    try:
        return AcceptanceMode(value) if value else None
    except ValueError:
        known = ", ".join(f"{mode.name.lower()}={mode.value}" for mode in AcceptanceMode)
        raise InvalidRequest("sampling.acceptance", f"acceptance is {value}; it must be one of {known}") from None


def logprobs_to_proto(logprobs: Iterable[TokenLogprobs]) -> list[common_pb2.TokenLogprobs]:
    """One message a token."""
    return [
        common_pb2.TokenLogprobs(
            logprob=item.logprob,
            top_token_ids=[token for token, _ in item.top],
            top_logprobs=[logprob for _, logprob in item.top],
        )
        for item in logprobs
    ]


def logprobs_from_proto(messages: Iterable[common_pb2.TokenLogprobs]) -> tuple[TokenLogprobs, ...]:
    """One value a token."""
    return tuple(
        TokenLogprobs(item.logprob, tuple(zip(item.top_token_ids, item.top_logprobs, strict=True))) for item in messages
    )


def identity_to_proto(identity: ModelIdentity) -> common_pb2.ModelIdentity:
    """Field by field."""
    return common_pb2.ModelIdentity(
        name=identity.name,
        tokenizer_fingerprint=identity.tokenizer_fingerprint,
        usable_vocabulary_tokens=identity.usable_vocabulary_tokens,
        context_limit_tokens=identity.context_limit_tokens,
        dtype=identity.dtype,
        model_fingerprint=identity.model_fingerprint,
    )


def identity_from_proto(message: common_pb2.ModelIdentity) -> ModelIdentity:
    """Field by field."""
    return ModelIdentity(
        name=message.name,
        tokenizer_fingerprint=message.tokenizer_fingerprint,
        usable_vocabulary_tokens=message.usable_vocabulary_tokens,
        context_limit_tokens=message.context_limit_tokens,
        dtype=message.dtype,
        model_fingerprint=message.model_fingerprint,
    )


def provenance_to_proto(provenance: Iterable[TokenProvenance]) -> list[common_pb2.TokenProvenance]:
    """Our numbers are the contract's; the generated stubs only know them under another type."""
    return cast("list[common_pb2.TokenProvenance]", [item.value for item in provenance])


def provenance_from_proto(provenance: Iterable[int]) -> tuple[TokenProvenance, ...]:
    """Where each token came from."""
    try:
        return tuple([_PROVENANCE[item] for item in provenance])  # in every message of a stream: no calls
    except KeyError as error:
        raise _unknown(TokenProvenance, error.args[0]) from None


def round_report_to_proto(report: RoundReport) -> common_pb2.RoundReport:
    """Field by field."""
    return common_pb2.RoundReport(
        round=report.round,
        num_draft_tokens=report.num_draft_tokens,
        num_accepted_tokens=report.num_accepted_tokens,
        lookup=cast("common_pb2.LookupResult", report.lookup.value),
        wait_ns=report.wait_ns,
        verify_ns=report.verify_ns,
        accept_ns=report.accept_ns,
        drafting_ns=report.drafting_ns,
        sent_bytes=report.sent_bytes,
        received_bytes=report.received_bytes,
        started_ns=report.started_ns,
        drafting_started_ns=report.drafting_started_ns,
    )


def round_report_from_proto(message: common_pb2.RoundReport) -> RoundReport:
    """Field by field."""
    return RoundReport(
        round=message.round,
        num_draft_tokens=message.num_draft_tokens,
        num_accepted_tokens=message.num_accepted_tokens,
        lookup=enum_from_proto(LookupResult, message.lookup),
        wait_ns=message.wait_ns,
        verify_ns=message.verify_ns,
        accept_ns=message.accept_ns,
        drafting_ns=message.drafting_ns,
        sent_bytes=message.sent_bytes,
        received_bytes=message.received_bytes,
        started_ns=message.started_ns,
        drafting_started_ns=message.drafting_started_ns if message.HasField("drafting_started_ns") else None,
    )


def speculation_report_to_proto(report: SpeculationReport) -> common_pb2.SpeculationReport:
    """Field by field, rounds included where the report has them."""
    return common_pb2.SpeculationReport(
        speculating=report.speculating,
        reason=report.reason,
        num_rounds=report.num_rounds,
        num_draft_tokens=report.num_draft_tokens,
        num_accepted_tokens=report.num_accepted_tokens,
        cache_hits=report.cache_hits,
        cache_misses=report.cache_misses,
        cache_late=report.cache_late,
        rounds=[round_report_to_proto(item) for item in report.rounds],
    )


def speculation_report_from_proto(message: common_pb2.SpeculationReport) -> SpeculationReport:
    """Field by field."""
    return SpeculationReport(
        speculating=message.speculating,
        reason=message.reason,
        num_rounds=message.num_rounds,
        num_draft_tokens=message.num_draft_tokens,
        num_accepted_tokens=message.num_accepted_tokens,
        cache_hits=message.cache_hits,
        cache_misses=message.cache_misses,
        cache_late=message.cache_late,
        rounds=tuple(round_report_from_proto(item) for item in message.rounds),
    )
