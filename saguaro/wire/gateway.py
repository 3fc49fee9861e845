"""GatewayService: proto <-> types."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from saguaro.answers import (
    AnswerDelta,
    AnswerEvent,
    AnswerFinished,
    AnswerPrompt,
    AnswerRequest,
    AnswerStarted,
    ChatPrompt,
    Prompt,
    ServedModel,
    TextPrompt,
    TokenPrompt,
)
from saguaro.errors import InvalidRequest
from saguaro.types import AcceptanceMode, FinishReason
from saguaro.v1 import common_pb2
from saguaro.v1 import gateway_pb2 as pb
from saguaro.wire.common import (
    enum_from_proto,
    identity_from_proto,
    identity_to_proto,
    items_of,
    logprobs_from_proto,
    logprobs_to_proto,
    provenance_from_proto,
    provenance_to_proto,
    sampling_from_proto,
    sampling_to_proto,
    speculation_report_from_proto,
    speculation_report_to_proto,
)
from saguaro.wire.policy import traffic_class_from_proto, traffic_class_to_proto
from saguaro.wire.tools import (
    call_deltas_from_proto,
    call_deltas_to_proto,
    chat_from_proto,
    chat_to_proto,
    tool_use_from_proto,
)


def answer_request_to_proto(request: AnswerRequest) -> pb.GenerateRequest:
    """What a client asks. Numbers must be within the contract's types: see `saguaro.validation`."""
    sampling = request.sampling if request.seed is None else replace(request.sampling, seed=request.seed)
    message = pb.GenerateRequest(
        model=request.model,
        sampling=sampling_to_proto(sampling, with_seed=request.seed is not None),
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        disable_speculation=request.disable_speculation,
        include_rounds=request.include_rounds,
        stop=request.stop,
        n=request.n,
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        top_logprobs=request.top_logprobs,
        session_id=request.session_id,
        resumable=request.resumable,
        include_text_lengths=request.include_text_lengths,
        traffic_class=traffic_class_to_proto(request.traffic_class),
    )
    match request.prompt:
        case TextPrompt(text):
            message.text = text
        case ChatPrompt():
            message.chat.CopyFrom(chat_to_proto(request.prompt, request.tool_use))
        case TokenPrompt(token_ids):
            message.tokens.SetInParent()
            message.tokens.token_ids.extend(token_ids)
    return message


def answer_request_from_proto(message: pb.GenerateRequest) -> AnswerRequest:
    """What a client asked, not validated; InvalidRequest where there is no prompt at all."""
    sampling, seed_given = sampling_from_proto(message.sampling)
    return AnswerRequest(
        prompt=_prompt_from_proto(message),
        sampling=replace(sampling, seed=0),
        seed=sampling.seed if seed_given else None,
        n=message.n if message.HasField("n") else 1,
        stop=items_of("stop", message.stop),
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        model=message.model,
        ignore_eos=message.ignore_eos,
        disable_speculation=message.disable_speculation,
        include_rounds=message.include_rounds,
        logprobs=message.logprobs,
        prompt_logprobs=message.prompt_logprobs,
        top_logprobs=message.top_logprobs,
        session_id=message.session_id if message.HasField("session_id") else None,
        resumable=message.resumable,
        include_text_lengths=message.include_text_lengths,
        tool_use=tool_use_from_proto(message.chat),
        traffic_class=traffic_class_from_proto(message.traffic_class),
    )


def _prompt_from_proto(message: pb.GenerateRequest) -> Prompt:
    match message.WhichOneof("prompt"):
        case "text":
            return TextPrompt(message.text)
        case "chat":
            return chat_from_proto(message.chat)
        case "tokens":
            return TokenPrompt(items_of("tokens", message.tokens.token_ids))
    raise InvalidRequest("prompt", "the request has no prompt; give one of text, chat, tokens")


def answer_event_to_proto(event: AnswerEvent) -> pb.GenerateResponse:
    """One event of an answer as it goes out."""
    match event:
        case AnswerStarted():
            started = pb.AnswerStarted(
                request_id=event.request_id,
                model=event.model,
                seed=event.seed,
                prompt_token_ids=event.prompt_token_ids,
                acceptance_mode=cast("common_pb2.AcceptanceMode", event.acceptance_mode.value),
            )
            return pb.GenerateResponse(started=started)
        case AnswerPrompt():
            return pb.GenerateResponse(prompt=pb.AnswerPrompt(logprobs=logprobs_to_proto(event.logprobs)))
        case AnswerDelta():
            delta = pb.AnswerDelta(
                text=event.text,
                token_ids=event.token_ids,
                provenance=provenance_to_proto(event.provenance),
                logprobs=logprobs_to_proto(event.logprobs),
                choice=event.choice,
                tool_calls=call_deltas_to_proto(event.tool_calls),
                text_lengths=event.text_lengths,
            )
            return pb.GenerateResponse(delta=delta)
        case AnswerFinished():
            finished = pb.AnswerFinished(
                reason=cast("common_pb2.FinishReason", event.reason.value),
                text=event.text,
                num_prompt_tokens=event.num_prompt_tokens,
                num_generated_tokens=event.num_generated_tokens,
                num_cached_prompt_tokens=event.num_cached_prompt_tokens,
                speculation=speculation_report_to_proto(event.speculation),
                choice=event.choice,
                tool_calls=call_deltas_to_proto(event.tool_calls),
            )
            return pb.GenerateResponse(finished=finished)


def answer_event_from_proto(message: pb.GenerateResponse) -> AnswerEvent | None:
    """One event of an answer as it came in; None for a kind that this version does not know."""
    match message.WhichOneof("event"):
        case "started":
            started = message.started
            return AnswerStarted(
                request_id=started.request_id,
                model=started.model,
                seed=started.seed,
                prompt_token_ids=tuple(started.prompt_token_ids),
                acceptance_mode=enum_from_proto(AcceptanceMode, started.acceptance_mode),
            )
        case "prompt":
            return AnswerPrompt(logprobs_from_proto(message.prompt.logprobs))
        case "delta":
            delta = message.delta
            return AnswerDelta(
                text=delta.text,
                token_ids=tuple(delta.token_ids),
                provenance=provenance_from_proto(delta.provenance),
                logprobs=logprobs_from_proto(delta.logprobs),
                choice=delta.choice,
                tool_calls=call_deltas_from_proto(delta.tool_calls),
                text_lengths=tuple(delta.text_lengths),
            )
        case "finished":
            finished = message.finished
            return AnswerFinished(
                reason=enum_from_proto(FinishReason, finished.reason),
                text=finished.text,
                num_prompt_tokens=finished.num_prompt_tokens,
                num_generated_tokens=finished.num_generated_tokens,
                num_cached_prompt_tokens=finished.num_cached_prompt_tokens,
                speculation=speculation_report_from_proto(finished.speculation),
                choice=finished.choice,
                tool_calls=call_deltas_from_proto(finished.tool_calls),
            )
    return None


def served_model_to_proto(served: ServedModel) -> pb.ServedModel:
    """Field by field."""
    return pb.ServedModel(
        model=identity_to_proto(served.model),
        speculating=served.speculating,
        not_speculating_reason=served.not_speculating_reason,
    )


def served_model_from_proto(message: pb.ServedModel) -> ServedModel:
    """Field by field."""
    return ServedModel(identity_from_proto(message.model), message.speculating, message.not_speculating_reason)
