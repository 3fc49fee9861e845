from saguaro.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VerifierServiceGenerateRequest(_message.Message):
    __slots__ = ("request_id", "model", "prompt_token_ids", "sampling", "max_tokens", "ignore_eos", "disable_speculation", "include_rounds", "logprobs", "prompt_logprobs", "top_logprobs", "traffic_class")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    DISABLE_SPECULATION_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    max_tokens: int
    ignore_eos: bool
    disable_speculation: bool
    include_rounds: bool
    logprobs: bool
    prompt_logprobs: bool
    top_logprobs: int
    traffic_class: _common_pb2.TrafficClass
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., max_tokens: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., disable_speculation: _Optional[bool] = ..., include_rounds: _Optional[bool] = ..., logprobs: _Optional[bool] = ..., prompt_logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., traffic_class: _Optional[_Union[_common_pb2.TrafficClass, str]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("generation", "emitted_token_ids", "num_rounds")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EMITTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    generation: VerifierServiceGenerateRequest
    emitted_token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_rounds: int
    def __init__(self, generation: _Optional[_Union[VerifierServiceGenerateRequest, _Mapping]] = ..., emitted_token_ids: _Optional[_Iterable[int]] = ..., num_rounds: _Optional[int] = ...) -> None: ...

class VerifierServiceGenerateResponse(_message.Message):
    __slots__ = ("started", "run", "finished", "prompt")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    started: GenerationStarted
    run: TokenRun
    finished: GenerationFinished
    prompt: PromptLogprobs
    def __init__(self, started: _Optional[_Union[GenerationStarted, _Mapping]] = ..., run: _Optional[_Union[TokenRun, _Mapping]] = ..., finished: _Optional[_Union[GenerationFinished, _Mapping]] = ..., prompt: _Optional[_Union[PromptLogprobs, _Mapping]] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("generation_id", "generate", "resume", "stop", "cancel")
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    generation_id: int
    generate: VerifierServiceGenerateRequest
    resume: ResumeRequest
    stop: StopGeneration
    cancel: CancelGeneration
    def __init__(self, generation_id: _Optional[int] = ..., generate: _Optional[_Union[VerifierServiceGenerateRequest, _Mapping]] = ..., resume: _Optional[_Union[ResumeRequest, _Mapping]] = ..., stop: _Optional[_Union[StopGeneration, _Mapping]] = ..., cancel: _Optional[_Union[CancelGeneration, _Mapping]] = ...) -> None: ...

class StopGeneration(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelGeneration(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RelayResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[RelayedEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[RelayedEvent, _Mapping]]] = ...) -> None: ...

class RelayedEvent(_message.Message):
    __slots__ = ("generation_id", "event", "failure")
    GENERATION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    generation_id: int
    event: VerifierServiceGenerateResponse
    failure: bytes
    def __init__(self, generation_id: _Optional[int] = ..., event: _Optional[_Union[VerifierServiceGenerateResponse, _Mapping]] = ..., failure: _Optional[bytes] = ...) -> None: ...

class GenerationStarted(_message.Message):
    __slots__ = ("seed", "acceptance_mode")
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_MODE_FIELD_NUMBER: _ClassVar[int]
    seed: int
    acceptance_mode: _common_pb2.AcceptanceMode
    def __init__(self, seed: _Optional[int] = ..., acceptance_mode: _Optional[_Union[_common_pb2.AcceptanceMode, str]] = ...) -> None: ...

class PromptLogprobs(_message.Message):
    __slots__ = ("logprobs",)
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    def __init__(self, logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class TokenRun(_message.Message):
    __slots__ = ("token_ids", "provenance", "logprobs", "report")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    provenance: _containers.RepeatedScalarFieldContainer[_common_pb2.TokenProvenance]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    report: _common_pb2.RoundReport
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., provenance: _Optional[_Iterable[_Union[_common_pb2.TokenProvenance, str]]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ..., report: _Optional[_Union[_common_pb2.RoundReport, _Mapping]] = ...) -> None: ...

class GenerationFinished(_message.Message):
    __slots__ = ("reason", "num_prompt_tokens", "num_generated_tokens", "num_cached_prompt_tokens", "speculation")
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    reason: _common_pb2.FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: _common_pb2.SpeculationReport
    def __init__(self, reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., num_prompt_tokens: _Optional[int] = ..., num_generated_tokens: _Optional[int] = ..., num_cached_prompt_tokens: _Optional[int] = ..., speculation: _Optional[_Union[_common_pb2.SpeculationReport, _Mapping]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVerifierInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVerifierInfoResponse(_message.Message):
    __slots__ = ("protocol_version", "model", "eos_token_ids", "speculating", "not_speculating_reason", "speculator_address", "lookahead_tokens", "budget_outcomes", "break_even_batch", "cache_hit_rate", "predicted_tokens_per_second", "predicted_plain_tokens_per_second", "num_audited", "num_mismatched", "classes")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SPECULATING_FIELD_NUMBER: _ClassVar[int]
    NOT_SPECULATING_REASON_FIELD_NUMBER: _ClassVar[int]
    SPECULATOR_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    BREAK_EVEN_BATCH_FIELD_NUMBER: _ClassVar[int]
    CACHE_HIT_RATE_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_PLAIN_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    NUM_AUDITED_FIELD_NUMBER: _ClassVar[int]
    NUM_MISMATCHED_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    model: _common_pb2.ModelIdentity
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    speculating: bool
    not_speculating_reason: str
    speculator_address: str
    lookahead_tokens: int
    budget_outcomes: int
    break_even_batch: float
    cache_hit_rate: float
    predicted_tokens_per_second: float
    predicted_plain_tokens_per_second: float
    num_audited: int
    num_mismatched: int
    classes: _common_pb2.TrafficPolicy
    def __init__(self, protocol_version: _Optional[int] = ..., model: _Optional[_Union[_common_pb2.ModelIdentity, _Mapping]] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., speculating: _Optional[bool] = ..., not_speculating_reason: _Optional[str] = ..., speculator_address: _Optional[str] = ..., lookahead_tokens: _Optional[int] = ..., budget_outcomes: _Optional[int] = ..., break_even_batch: _Optional[float] = ..., cache_hit_rate: _Optional[float] = ..., predicted_tokens_per_second: _Optional[float] = ..., predicted_plain_tokens_per_second: _Optional[float] = ..., num_audited: _Optional[int] = ..., num_mismatched: _Optional[int] = ..., classes: _Optional[_Union[_common_pb2.TrafficPolicy, _Mapping]] = ...) -> None: ...

class GetLoadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLoadResponse(_message.Message):
    __slots__ = ("num_running", "num_waiting", "num_kv_blocks", "free_kv_blocks", "num_preemptions", "num_stale_messages")
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FREE_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_STALE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    num_running: int
    num_waiting: int
    num_kv_blocks: int
    free_kv_blocks: int
    num_preemptions: int
    num_stale_messages: int
    def __init__(self, num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_kv_blocks: _Optional[int] = ..., free_kv_blocks: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., num_stale_messages: _Optional[int] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("policy", "classes")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    policy: str
    classes: _common_pb2.TrafficPolicy
    def __init__(self, policy: _Optional[str] = ..., classes: _Optional[_Union[_common_pb2.TrafficPolicy, _Mapping]] = ...) -> None: ...

class SetPolicyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
