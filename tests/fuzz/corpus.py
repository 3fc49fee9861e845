"""Valid messages of every method of the three gRPC ports, from which mutations start; each is taken as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from saguaro.v1 import common_pb2, gateway_pb2, speculator_pb2, verifier_pb2

EMULATED_VOCABULARY = 600
_SAMPLING = common_pb2.SamplingParams(
    temperature=0.8,
    top_p=0.9,
    top_k=40,
    seed=7,
    min_p=0.01,
    repetition_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    logit_bias=[common_pb2.LogitBias(token_id=300, bias=-2.0)],
    min_tokens=1,
    stop_token_ids=[299],
    acceptance=common_pb2.ACCEPTANCE_MODE_REJECTION,
    cached_scale=0.7,
)
_CONSTRAINED = [
    common_pb2.SamplingParams(regex="[a-z]{1,8}"),
    common_pb2.SamplingParams(json_schema='{"type": "object", "properties": {"a": {"enum": ["b", "c"]}}}'),
    common_pb2.SamplingParams(json_object=common_pb2.JsonObjectConstraint()),
    common_pb2.SamplingParams(grammar='root ::= "yes" | "no"'),
]
_POLICY = common_pb2.TrafficPolicy(
    latency=common_pb2.ClassPolicy(max_lookahead_tokens=4, break_even_batch=8.0),
    throughput=common_pb2.ClassPolicy(max_lookahead_tokens=2, acceptance=common_pb2.ACCEPTANCE_MODE_COUPLED),
)


@dataclass(frozen=True)
class Method:
    """One method as gRPC names it, with valid requests. `streams_requests`: many of them go on one call."""

    name: str
    requests: tuple[Message, ...]
    streams_requests: bool = False
    weight: int = 1  # its share of the frames

    @property
    def kind(self) -> Descriptor:
        return self.requests[0].DESCRIPTOR

    def is_message(self, frame: bytes) -> bool:
        """Whether it can be read at all."""
        try:
            type(self.requests[0]).FromString(frame)
        except DecodeError:
            return False
        return True

    @cached_property
    def frames(self) -> list[bytes]:
        return [request.SerializeToString() for request in self.requests]


def _gateway() -> tuple[Method, ...]:
    pb = gateway_pb2
    said = pb.ChatMessage(role="user", content="Why is the sky blue?")
    tool = pb.Tool(name="add", description="Adds.", parameters='{"type": "object"}', strict=True)
    chat = pb.ChatPrompt(messages=[pb.ChatMessage(role="system", content="Be brief."), said])
    with_tools = pb.ChatPrompt(messages=[said], tool_use=pb.ToolUse(tools=[tool], must_call=True, single=True))
    called = pb.ChatMessage(role="assistant", tool_calls=[pb.ToolCall(id="c", name="add", arguments="{}")])
    asked: list[Message] = [
        pb.GenerateRequest(text="cactus", sampling=_SAMPLING, max_tokens=3, stop=["zz"], n=2, include_rounds=True),
        pb.GenerateRequest(chat=chat, max_tokens=2, logprobs=True, prompt_logprobs=True, top_logprobs=3),
        pb.GenerateRequest(tokens=pb.TokenPrompt(token_ids=[300, 301, 302]), max_tokens=2, disable_speculation=True),
        pb.GenerateRequest(text="x", max_tokens=2, traffic_class=common_pb2.TRAFFIC_CLASS_LATENCY, resumable=True),
    ]
    asked += [pb.GenerateRequest(text="x", sampling=sampling, max_tokens=2) for sampling in _CONSTRAINED]
    hostile = [pb.GenerateRequest(chat=with_tools), pb.GenerateRequest(chat=pb.ChatPrompt(messages=[said, called]))]
    return (
        Method("Generate", (*asked, *hostile), weight=10),
        Method("ResumeStream", (pb.ResumeStreamRequest(request_id="r", after_sequence_number=1),)),
        Method("CancelStream", (pb.CancelStreamRequest(request_id="r"),)),
        Method("CreateSession", (pb.CreateSessionRequest(messages=[said]),), weight=2),
        Method("GetSession", (pb.GetSessionRequest(session_id="s"),)),
        Method("DeleteSession", (pb.DeleteSessionRequest(session_id="s"),)),
        Method("Tokenize", (pb.TokenizeRequest(text="The saguaro"),), weight=2),
        Method("Detokenize", (pb.DetokenizeRequest(token_ids=[300, 301]),), weight=2),
        Method("ListModels", (pb.ListModelsRequest(),)),
        Method("GetPolicy", (pb.GatewayServiceGetPolicyRequest(),)),
        Method("SetPolicy", (pb.GatewayServiceSetPolicyRequest(policy=_POLICY),), weight=2),
    )


def _verifier() -> tuple[Method, ...]:
    pb = verifier_pb2

    def generation(sampling: Any = _SAMPLING, **fields: Any) -> Any:
        tokens = list(range(300, 320))
        return pb.VerifierServiceGenerateRequest(
            request_id="fuzz", prompt_token_ids=tokens, sampling=sampling, max_tokens=2, **fields
        )

    plain = generation(include_rounds=True, logprobs=True, prompt_logprobs=True, top_logprobs=2)
    resume = pb.ResumeRequest(generation=generation(), emitted_token_ids=[300], num_rounds=1)
    asked = (plain, *map(generation, _CONSTRAINED), generation(disable_speculation=True, ignore_eos=True))
    relayed = [pb.RelayRequest(generation_id=number, generate=item) for number, item in enumerate(asked, start=1)]
    relayed += [
        pb.RelayRequest(generation_id=99, resume=resume),
        pb.RelayRequest(generation_id=1, stop=pb.StopGeneration()),
        pb.RelayRequest(generation_id=2, cancel=pb.CancelGeneration()),
    ]
    return (
        Method("Generate", asked, weight=4),
        Method("Resume", (resume,), weight=2),
        Method("Abort", (pb.AbortRequest(request_id="nobody"),)),
        Method("GetVerifierInfo", (pb.GetVerifierInfoRequest(),)),
        Method("GetLoad", (pb.GetLoadRequest(),)),
        Method("SetPolicy", (pb.SetPolicyRequest(policy="fixed:4,16,inf", classes=_POLICY),)),
        Method("Relay", tuple(relayed), streams_requests=True, weight=10),
    )


def _speculator() -> tuple[Method, ...]:
    pb = speculator_pb2
    opened = [
        pb.OpenSequence(
            sequence_id=number,
            epoch=1,
            round=0,
            token_ids=range(300, 312),
            sampling=sampling,
            num_prompt_tokens=12,
        )
        for number, sampling in enumerate((_SAMPLING, *_CONSTRAINED), start=1)
    ]
    wish: dict[str, Any] = {"lookahead_tokens": 4, "budget_outcomes": 8, "soft_deadline_ns": 5_000_000}
    explicit = pb.CommitRound(
        sequence_id=1, epoch=1, round=0, bonus_token_id=300, explicit=pb.ExplicitSpeculation(token_ids=[301, 302])
    )
    in_time = pb.CommitRound(
        sequence_id=2, epoch=1, round=0, bonus_token_id=301, just_in_time=pb.JustInTime(lookahead_tokens=4)
    )
    frames = [pb.SpeculateRequest(step_id=number, opens=[item], **wish) for number, item in enumerate(opened)]
    frames += [
        pb.SpeculateRequest(step_id=9, commits=[explicit, in_time], **wish),
        pb.SpeculateRequest(step_id=10, closes=[pb.CloseSequence(sequence_id=1, epoch=1)], cached_scale=0.5, **wish),
    ]
    return (
        Method("Speculate", tuple(frames), streams_requests=True, weight=20),
        Method("GetSpeculatorInfo", (pb.GetSpeculatorInfoRequest(),)),
    )


METHODS: dict[str, Sequence[Method]] = {
    "gateway": _gateway(),
    "verifier": _verifier(),
    "speculator": _speculator(),
}
SERVICES = {
    "gateway": "saguaro.v1.GatewayService",
    "verifier": "saguaro.v1.VerifierService",
    "speculator": "saguaro.v1.SpeculatorService",
}
