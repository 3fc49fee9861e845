"""VerifierService: proto <-> types."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from saguaro.errors import InvalidRequest
from saguaro.types import (
    AcceptanceMode,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    PromptLogprobs,
    Resumption,
    TokenRun,
    VerifierInfo,
)
from saguaro.v1 import common_pb2
from saguaro.v1 import verifier_pb2 as pb
from saguaro.wire.common import (
    enum_from_proto,
    identity_from_proto,
    identity_to_proto,
    logprobs_from_proto,
    logprobs_to_proto,
    provenance_from_proto,
    provenance_to_proto,
    round_report_from_proto,
    round_report_to_proto,
    sampling_from_proto,
    sampling_to_proto,
    speculation_report_from_proto,
    speculation_report_to_proto,
)
from saguaro.wire.policy import (
    traffic_class_from_proto,
    traffic_class_to_proto,
    traffic_policy_from_proto,
    traffic_policy_to_proto,
)


def generation_request_to_proto(request: GenerationRequest) -> pb.VerifierServiceGenerateRequest:
    """What the gateway asks of a verifier."""
    return pb.VerifierServiceGenerateRequest(
        request_id=request.request_id,
        model=request.model,
        prompt_token_ids=request.prompt,
        sampling=sampling_to_proto(request.sampling),
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        disable_speculation=request.disable_speculation,
        include_rounds=request.include_rounds,
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        top_logprobs=request.top_logprobs,
        traffic_class=traffic_class_to_proto(request.traffic_class),
    )


def generation_request_from_proto(message: pb.VerifierServiceGenerateRequest) -> GenerationRequest:
    """What a verifier is asked; the seed must be there, since the caller has to be able to repeat the request."""
    sampling, seed_given = sampling_from_proto(message.sampling)
    if not seed_given and sampling.temperature > 0:
        raise InvalidRequest("sampling.seed", "a seed is needed at temperature > 0; the gateway draws one")
    return GenerationRequest(
        request_id=message.request_id,
        prompt=tuple(message.prompt_token_ids),
        sampling=sampling,
        model=message.model,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        ignore_eos=message.ignore_eos,
        disable_speculation=message.disable_speculation,
        include_rounds=message.include_rounds,
        logprobs=message.logprobs,
        prompt_logprobs=message.prompt_logprobs,
        top_logprobs=message.top_logprobs,
        traffic_class=traffic_class_from_proto(message.traffic_class),
    )


def resume_request_to_proto(request: GenerationRequest, resumption: Resumption) -> pb.ResumeRequest:
    """What the gateway asks of the verifier that is to go on from `resumption`."""
    return pb.ResumeRequest(
        generation=generation_request_to_proto(request),
        emitted_token_ids=resumption.token_ids,
        num_rounds=resumption.num_rounds,
    )


def resume_request_from_proto(message: pb.ResumeRequest) -> GenerationRequest:
    """What a verifier is asked to go on with; the same errors as for a new generation."""
    return replace(
        generation_request_from_proto(message.generation),
        resumption=Resumption(tuple(message.emitted_token_ids), message.num_rounds),
    )


def event_to_proto(event: GenerationEvent) -> pb.VerifierServiceGenerateResponse:
    """One event of a generation as it goes out."""
    response = pb.VerifierServiceGenerateResponse()
    write_event(event, response)
    return response


def write_event(event: GenerationEvent, response: pb.VerifierServiceGenerateResponse) -> None:
    """The same into an empty message that is part of another."""
    match event:
        case GenerationStarted():
            response.started.seed = event.seed
            response.started.acceptance_mode = cast(common_pb2.AcceptanceMode, int(event.acceptance_mode))
        case PromptLogprobs():
            response.prompt.SetInParent()  # a prompt of one token has none
            response.prompt.logprobs.extend(logprobs_to_proto(event.logprobs))
        case TokenRun():
            response.run.token_ids.extend(event.token_ids)
            response.run.provenance.extend(provenance_to_proto(event.provenance))
            response.run.logprobs.extend(logprobs_to_proto(event.logprobs))
            if event.report is not None:
                response.run.report.CopyFrom(round_report_to_proto(event.report))
        case GenerationFinished():
            response.finished.CopyFrom(
                pb.GenerationFinished(
                    reason=cast(common_pb2.FinishReason, int(event.reason)),
                    num_prompt_tokens=event.num_prompt_tokens,
                    num_generated_tokens=event.num_generated_tokens,
                    num_cached_prompt_tokens=event.num_cached_prompt_tokens,
                    speculation=speculation_report_to_proto(event.speculation),
                )
            )


def event_from_proto(message: pb.VerifierServiceGenerateResponse) -> GenerationEvent | None:
    """One event of a generation as it came in; None for a kind that this version does not know."""
    match message.WhichOneof("event"):
        case "started":
            started = message.started
            return GenerationStarted(started.seed, enum_from_proto(AcceptanceMode, started.acceptance_mode))
        case "prompt":
            return PromptLogprobs(logprobs_from_proto(message.prompt.logprobs))
        case "run":
            return TokenRun(
                tuple(message.run.token_ids),
                provenance_from_proto(message.run.provenance),
                logprobs_from_proto(message.run.logprobs),
                round_report_from_proto(message.run.report) if message.run.HasField("report") else None,
            )
        case "finished":
            finished = message.finished
            return GenerationFinished(
                reason=enum_from_proto(FinishReason, finished.reason),
                num_prompt_tokens=finished.num_prompt_tokens,
                num_generated_tokens=finished.num_generated_tokens,
                num_cached_prompt_tokens=finished.num_cached_prompt_tokens,
                speculation=speculation_report_from_proto(finished.speculation),
            )
    return None


def verifier_info_to_proto(info: VerifierInfo) -> pb.GetVerifierInfoResponse:
    """Who the verifier is."""
    return pb.GetVerifierInfoResponse(
        protocol_version=info.protocol_version,
        model=identity_to_proto(info.model),
        eos_token_ids=info.eos_token_ids,
        speculating=info.speculating,
        not_speculating_reason=info.not_speculating_reason,
        speculator_address=info.speculator_address,
        lookahead_tokens=info.lookahead,
        budget_outcomes=info.budget,
        break_even_batch=info.break_even_batch,
        cache_hit_rate=info.cache_hit_rate,
        predicted_tokens_per_second=info.predicted_rate,
        predicted_plain_tokens_per_second=info.predicted_plain_rate,
        num_audited=info.num_audited,
        num_mismatched=info.num_mismatched,
        classes=traffic_policy_to_proto(info.classes),
    )


def verifier_info_from_proto(message: pb.GetVerifierInfoResponse) -> VerifierInfo:
    """Who the verifier is, as the gateway reads it."""
    return VerifierInfo(
        protocol_version=message.protocol_version,
        model=identity_from_proto(message.model),
        eos_token_ids=tuple(message.eos_token_ids),
        speculating=message.speculating,
        not_speculating_reason=message.not_speculating_reason,
        speculator_address=message.speculator_address,
        lookahead=message.lookahead_tokens,
        budget=message.budget_outcomes,
        break_even_batch=message.break_even_batch,
        cache_hit_rate=message.cache_hit_rate,
        predicted_rate=message.predicted_tokens_per_second,
        predicted_plain_rate=message.predicted_plain_tokens_per_second,
        num_audited=message.num_audited,
        num_mismatched=message.num_mismatched,
        classes=traffic_policy_from_proto(message.classes),
    )
