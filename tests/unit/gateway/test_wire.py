"""What goes onto the wire comes off it the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from saguaro import types
from saguaro.answers import (
    AnswerDelta,
    AnswerEvent,
    AnswerFinished,
    AnswerPrompt,
    AnswerRequest,
    AnswerStarted,
    ChatMessage,
    ChatPrompt,
    Prompt,
    ServedModel,
    TextPrompt,
    TokenPrompt,
)
from saguaro.errors import Incompatible, InvalidRequest
from saguaro.sessions import SessionInfo
from saguaro.tools import Tool, ToolCall, ToolCallDelta, ToolUse
from saguaro.types import (
    Constraint,
    ConstraintKind,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LookupResult,
    ModelIdentity,
    OpenSequence,
    PromptLogprobs,
    Resumption,
    RoundReport,
    SamplingParams,
    SpeculationReport,
    TokenLogprobs,
    TokenProvenance,
    TokenRun,
    VerifierFrame,
)
from saguaro.v1 import common_pb2, gateway_pb2, speculator_pb2, verifier_pb2
from saguaro.wire import common, gateway, sessions, speculator, verifier

ROUND = RoundReport(3, 4, 2, LookupResult.LATE, 10, 20, 30, 40, 50, 60, 70, 80)
REPORT = SpeculationReport(True, "why", 9, 36, 20, 5, 3, 1, (ROUND, ROUND))
IDENTITY = ModelIdentity("name", "ab" * 32, 49152, 8192, "float32", "cd" * 32)
SAMPLING = SamplingParams(
    0.5,
    0.25,
    7,
    2**64 - 1,
    3,
    0.1,
    1.2,
    -0.5,
    2.0,
    ((4, -100.0), (7, 0.3)),
    9,
    (1, 2),
    acceptance=types.AcceptanceMode.REJECTION,
    cached_scale=0.0,
)
LOGPROBS = (TokenLogprobs(-0.5, ((4, -0.25), (9, -2.0))), TokenLogprobs(-3.0))  # float32 holds these numbers


@pytest.mark.parametrize("reused", [None, False, True])
def test_a_session_survives_the_wire(reused: bool | None) -> None:
    said = (ChatMessage("system", ""), ChatMessage("user", "é"))
    session = SessionInfo("id", "m", 12.5, 99.25, 3, 77, said, reused, True)
    wire = gateway_pb2.Session.FromString(sessions.session_to_proto(session).SerializeToString())
    assert sessions.session_from_proto(wire) == session


CALLS = (ToolCallDelta(0, "c", "f", ""), ToolCallDelta(1, "", "", "{"))
CALLED = ChatMessage("assistant", "", (ToolCall("c", "f", '{"é": 1}'), ToolCall("d", "g", "")))
TOOLS = ToolUse((Tool("f", "é", '{"type": "object"}', True), Tool("g")), must_call=True, only="f", single=True)


@pytest.mark.parametrize(
    "prompt",
    [
        TextPrompt(""),
        ChatPrompt((ChatMessage("user", "é"),)),
        ChatPrompt((CALLED, ChatMessage("tool", "é", (), "c"))),
        ChatPrompt(()),
        TokenPrompt((0, 2**32 - 1)),
    ],
)
def test_an_answer_request_survives_the_wire(prompt: Prompt) -> None:
    numbers = (replace(SAMPLING, seed=0), 2**64 - 1, 3, ("end", "é"), 77)
    request = AnswerRequest(prompt, *numbers, "m", True, True, True, True, True, 5, "s", True, True)
    wire = gateway_pb2.GenerateRequest.FromString(gateway.answer_request_to_proto(request).SerializeToString())
    assert gateway.answer_request_from_proto(wire) == request


@pytest.mark.parametrize("use", [TOOLS, ToolUse(())])
def test_tools_of_a_chat_survive_the_wire(use: ToolUse) -> None:
    request = AnswerRequest(ChatPrompt((CALLED,)), tool_use=use)
    wire = gateway_pb2.GenerateRequest.FromString(gateway.answer_request_to_proto(request).SerializeToString())
    assert gateway.answer_request_from_proto(wire) == request


def test_a_generation_request_survives_the_wire() -> None:
    request = GenerationRequest("id", (1, 2), SAMPLING, "m", 7, True, True, True, True, True, 3)
    message = verifier_pb2.VerifierServiceGenerateRequest
    wire = message.FromString(verifier.generation_request_to_proto(request).SerializeToString())
    assert verifier.generation_request_from_proto(wire) == request


@pytest.mark.parametrize("resumption", [Resumption((3, 2**32 - 1), 1), Resumption((), 0)])
def test_a_resumed_request_survives_the_wire(resumption: Resumption) -> None:
    request = GenerationRequest("id", (1, 2), SAMPLING, "m", 7, resumption=resumption)
    wire = verifier_pb2.ResumeRequest.FromString(
        verifier.resume_request_to_proto(request, resumption).SerializeToString()
    )
    assert verifier.resume_request_from_proto(wire) == request


@pytest.mark.parametrize(
    "event",
    [
        GenerationStarted(0, types.AcceptanceMode.COUPLED),
        PromptLogprobs(()),
        PromptLogprobs(LOGPROBS),
        TokenRun((5, 6), (TokenProvenance.LATE_DRAFT, TokenProvenance.BONUS), LOGPROBS),
        TokenRun((5,), (TokenProvenance.PLAIN,), (), ROUND),
        TokenRun((5,), (TokenProvenance.PLAIN,)),
        GenerationFinished(FinishReason.ABORTED, 3, 4, 2, REPORT),
    ],
)
def test_a_generation_event_survives_the_wire(event: GenerationEvent) -> None:
    message = verifier_pb2.VerifierServiceGenerateResponse
    wire = message.FromString(verifier.event_to_proto(event).SerializeToString())
    assert verifier.event_from_proto(wire) == event


def test_an_opening_of_a_sequence_survives_the_wire() -> None:
    frame = VerifierFrame(1, 4, 8, opens=(OpenSequence(1, 2, 3, (4, 5, 6), SAMPLING, 2),), cached_scale=0.0)
    assert speculator.verifier_frame_from_proto(speculator.verifier_frame_to_proto(frame)) == frame


def test_defaults_are_defaults_on_both_sides_of_the_wire() -> None:
    assert gateway.answer_request_from_proto(gateway_pb2.GenerateRequest(text="a")) == AnswerRequest(TextPrompt("a"))
    assert gateway.answer_request_from_proto(
        gateway.answer_request_to_proto(AnswerRequest(TextPrompt("a")))
    ) == AnswerRequest(TextPrompt("a"))


def test_zero_is_not_taken_for_absent_where_it_is_not_the_default() -> None:
    request = AnswerRequest(TextPrompt("a"), SamplingParams(top_p=0.0, repetition_penalty=0.0), n=0)
    back = gateway.answer_request_from_proto(gateway.answer_request_to_proto(request))
    assert (back.sampling.top_p, back.sampling.repetition_penalty, back.n) == (0.0, 0.0, 0)


def test_a_request_without_any_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no prompt"):
        gateway.answer_request_from_proto(gateway_pb2.GenerateRequest())


@pytest.mark.parametrize(
    "event",
    [
        AnswerStarted("id", "model", 2**63, (1, 2)),
        AnswerStarted("", "", 0, ()),
        AnswerPrompt(()),
        AnswerPrompt(LOGPROBS),
        AnswerDelta("é", (5, 6), (TokenProvenance.LATE_DRAFT, TokenProvenance.BONUS)),
        AnswerDelta("é", (5, 6), (TokenProvenance.LATE_DRAFT, TokenProvenance.BONUS), LOGPROBS, choice=2),
        AnswerDelta("é", (5,), (TokenProvenance.PLAIN,), tool_calls=CALLS, text_lengths=(1,)),
        AnswerFinished(FinishReason.LENGTH, "rest", 3, 4, 2, REPORT, choice=1),
        AnswerFinished(FinishReason.LENGTH, "", 3, 4, 2, REPORT, tool_calls=CALLS),
    ],
)
def test_an_answer_event_survives_the_wire(event: AnswerEvent) -> None:
    wire = gateway_pb2.GenerateResponse.FromString(gateway.answer_event_to_proto(event).SerializeToString())
    assert gateway.answer_event_from_proto(wire) == event


def test_an_event_of_a_later_version_is_passed_over() -> None:
    assert gateway.answer_event_from_proto(gateway_pb2.GenerateResponse()) is None


def test_an_enum_of_a_later_version_is_named_with_what_is_known() -> None:
    with pytest.raises(Incompatible, match=r"LookupResult 9; this version knows HIT=1"):
        common.enum_from_proto(LookupResult, 9)


def test_sampling_says_whether_the_seed_was_given() -> None:
    assert common.sampling_from_proto(common.sampling_to_proto(SAMPLING)) == (SAMPLING, True)
    without = common.sampling_from_proto(common.sampling_to_proto(SAMPLING, with_seed=False))
    assert without == (replace(SAMPLING, seed=0), False)


@pytest.mark.parametrize("kind", ConstraintKind)
def test_a_constraint_travels_with_the_sampling_in_the_field_of_its_kind(kind: ConstraintKind) -> None:
    text = "" if kind is ConstraintKind.JSON_OBJECT else "é"
    sampling = SamplingParams(constraint=Constraint(kind, text))
    wire = common.sampling_to_proto(sampling)
    assert [field.number for field, _ in wire.ListFields() if field.number >= 20] == [kind.value]
    assert common.sampling_from_proto(common_pb2.SamplingParams.FromString(wire.SerializeToString()))[0] == sampling


def test_reports_identities_and_models_survive_the_wire() -> None:
    assert common.speculation_report_from_proto(common.speculation_report_to_proto(REPORT)) == REPORT
    assert common.identity_from_proto(common.identity_to_proto(IDENTITY)) == IDENTITY
    served = ServedModel(IDENTITY, False, "no speculator")
    assert gateway.served_model_from_proto(gateway.served_model_to_proto(served)) == served


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (types.AcceptanceMode, common_pb2.AcceptanceMode),
        (types.FinishReason, common_pb2.FinishReason),
        (types.TokenProvenance, common_pb2.TokenProvenance),
        (types.LookupResult, common_pb2.LookupResult),
        (types.NotSpeculatingReason, speculator_pb2.NotSpeculatingReason),
    ],
)
def test_enum_numbers_are_those_of_the_contract(ours: type, theirs: object) -> None:
    prefix = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in ours.__name__).strip("_")
    contract = {name.removeprefix(f"{prefix}_"): number for name, number in theirs.items() if number}  # type: ignore[attr-defined]
    assert contract == {member.name: member.value for member in ours}  # type: ignore[attr-defined]


def test_what_a_message_leaves_out_is_the_deployment_s_choice_and_an_unknown_mode_is_refused_by_name() -> None:
    sampling, _ = common.sampling_from_proto(common_pb2.SamplingParams())
    assert (sampling.acceptance, sampling.cached_scale) == (None, None)
    assert speculator.verifier_frame_from_proto(speculator_pb2.SpeculateRequest()).cached_scale == 1.0
    unknown = common_pb2.SamplingParams()
    unknown.MergeFromString(b"\xc0\x01\x07")  # field 24, a number of a later version
    with pytest.raises(InvalidRequest, match="acceptance is 7; it must be one of coupled=1, rejection=2") as caught:
        common.sampling_from_proto(unknown)
    assert caught.value.field == "sampling.acceptance"


@pytest.mark.parametrize("field", ["tokens", "stop", "logit_bias", "stop_token_ids"])
def test_a_list_too_long_to_take_apart_is_refused_by_its_length(field: str) -> None:
    message = gateway_pb2.GenerateRequest(text="a")
    count = (1 << 20) + 1
    if field == "tokens":
        message.tokens.token_ids.extend([1] * count)
    elif field == "stop":
        message.stop.extend(["a"] * count)
    elif field == "logit_bias":
        message.sampling.logit_bias.extend([common_pb2.LogitBias()] * count)
    else:
        message.sampling.stop_token_ids.extend([1] * count)
    with pytest.raises(InvalidRequest, match=f"{field} has {count} items; at most {count - 1} are taken") as refused:
        gateway.answer_request_from_proto(message)
    assert refused.value.field == field
