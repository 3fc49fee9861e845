from saguaro.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChatMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class ChatPrompt(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class TokenPrompt(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("model", "text", "chat", "tokens", "sampling", "max_tokens", "ignore_eos", "disable_speculation", "include_rounds", "stop", "n", "logprobs", "prompt_logprobs", "top_logprobs", "traffic_class")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    DISABLE_SPECULATION_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    chat: ChatPrompt
    tokens: TokenPrompt
    sampling: _common_pb2.SamplingParams
    max_tokens: int
    ignore_eos: bool
    disable_speculation: bool
    include_rounds: bool
    stop: _containers.RepeatedScalarFieldContainer[str]
    n: int
    logprobs: bool
    prompt_logprobs: bool
    top_logprobs: int
    traffic_class: _common_pb2.TrafficClass
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ..., chat: _Optional[_Union[ChatPrompt, _Mapping]] = ..., tokens: _Optional[_Union[TokenPrompt, _Mapping]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., max_tokens: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., disable_speculation: _Optional[bool] = ..., include_rounds: _Optional[bool] = ..., stop: _Optional[_Iterable[str]] = ..., n: _Optional[int] = ..., logprobs: _Optional[bool] = ..., prompt_logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., traffic_class: _Optional[_Union[_common_pb2.TrafficClass, str]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("started", "delta", "finished", "prompt")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    started: AnswerStarted
    delta: AnswerDelta
    finished: AnswerFinished
    prompt: AnswerPrompt
    def __init__(self, started: _Optional[_Union[AnswerStarted, _Mapping]] = ..., delta: _Optional[_Union[AnswerDelta, _Mapping]] = ..., finished: _Optional[_Union[AnswerFinished, _Mapping]] = ..., prompt: _Optional[_Union[AnswerPrompt, _Mapping]] = ...) -> None: ...

class AnswerStarted(_message.Message):
    __slots__ = ("request_id", "model", "seed", "prompt_token_ids", "acceptance_mode")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_MODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    seed: int
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    acceptance_mode: _common_pb2.AcceptanceMode
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., seed: _Optional[int] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., acceptance_mode: _Optional[_Union[_common_pb2.AcceptanceMode, str]] = ...) -> None: ...

class AnswerPrompt(_message.Message):
    __slots__ = ("logprobs",)
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    def __init__(self, logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...

class AnswerDelta(_message.Message):
    __slots__ = ("text", "token_ids", "provenance", "logprobs", "choice")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    provenance: _containers.RepeatedScalarFieldContainer[_common_pb2.TokenProvenance]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    choice: int
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., provenance: _Optional[_Iterable[_Union[_common_pb2.TokenProvenance, str]]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping]]] = ..., choice: _Optional[int] = ...) -> None: ...

class AnswerFinished(_message.Message):
    __slots__ = ("reason", "text", "num_prompt_tokens", "num_generated_tokens", "num_cached_prompt_tokens", "speculation", "choice")
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    reason: _common_pb2.FinishReason
    text: str
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: _common_pb2.SpeculationReport
    choice: int
    def __init__(self, reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., text: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_generated_tokens: _Optional[int] = ..., num_cached_prompt_tokens: _Optional[int] = ..., speculation: _Optional[_Union[_common_pb2.SpeculationReport, _Mapping]] = ..., choice: _Optional[int] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "text")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "token_ids")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ServedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[ServedModel, _Mapping]]] = ...) -> None: ...

class ServedModel(_message.Message):
    __slots__ = ("model", "speculating", "not_speculating_reason")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SPECULATING_FIELD_NUMBER: _ClassVar[int]
    NOT_SPECULATING_REASON_FIELD_NUMBER: _ClassVar[int]
    model: _common_pb2.ModelIdentity
    speculating: bool
    not_speculating_reason: str
    def __init__(self, model: _Optional[_Union[_common_pb2.ModelIdentity, _Mapping]] = ..., speculating: _Optional[bool] = ..., not_speculating_reason: _Optional[str] = ...) -> None: ...

class GatewayServiceGetPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GatewayServiceGetPolicyResponse(_message.Message):
    __slots__ = ("policy", "verifiers")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    policy: _common_pb2.TrafficPolicy
    verifiers: _containers.RepeatedCompositeFieldContainer[VerifierPolicy]
    def __init__(self, policy: _Optional[_Union[_common_pb2.TrafficPolicy, _Mapping]] = ..., verifiers: _Optional[_Iterable[_Union[VerifierPolicy, _Mapping]]] = ...) -> None: ...

class VerifierPolicy(_message.Message):
    __slots__ = ("address", "in_force", "reason")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IN_FORCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    address: str
    in_force: bool
    reason: str
    def __init__(self, address: _Optional[str] = ..., in_force: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class GatewayServiceSetPolicyRequest(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: _common_pb2.TrafficPolicy
    def __init__(self, policy: _Optional[_Union[_common_pb2.TrafficPolicy, _Mapping]] = ...) -> None: ...

class GatewayServiceSetPolicyResponse(_message.Message):
    __slots__ = ("policy", "verifiers")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    policy: _common_pb2.TrafficPolicy
    verifiers: _containers.RepeatedCompositeFieldContainer[VerifierPolicy]
    def __init__(self, policy: _Optional[_Union[_common_pb2.TrafficPolicy, _Mapping]] = ..., verifiers: _Optional[_Iterable[_Union[VerifierPolicy, _Mapping]]] = ...) -> None: ...
