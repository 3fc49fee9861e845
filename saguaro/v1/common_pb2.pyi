from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcceptanceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTANCE_MODE_UNSPECIFIED: _ClassVar[AcceptanceMode]
    ACCEPTANCE_MODE_COUPLED: _ClassVar[AcceptanceMode]
    ACCEPTANCE_MODE_REJECTION: _ClassVar[AcceptanceMode]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORTED: _ClassVar[FinishReason]

class TokenProvenance(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_PROVENANCE_UNSPECIFIED: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_CACHED_DRAFT: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_LATE_DRAFT: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_BONUS: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_PLAIN: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_NGRAM_DRAFT: _ClassVar[TokenProvenance]
    TOKEN_PROVENANCE_NEIGHBOUR_DRAFT: _ClassVar[TokenProvenance]

class LookupResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOOKUP_RESULT_UNSPECIFIED: _ClassVar[LookupResult]
    LOOKUP_RESULT_HIT: _ClassVar[LookupResult]
    LOOKUP_RESULT_MISS: _ClassVar[LookupResult]
    LOOKUP_RESULT_LATE: _ClassVar[LookupResult]
    LOOKUP_RESULT_NOT_SPECULATED: _ClassVar[LookupResult]

class TrafficClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAFFIC_CLASS_UNSPECIFIED: _ClassVar[TrafficClass]
    TRAFFIC_CLASS_LATENCY: _ClassVar[TrafficClass]
    TRAFFIC_CLASS_BALANCED: _ClassVar[TrafficClass]
    TRAFFIC_CLASS_THROUGHPUT: _ClassVar[TrafficClass]
ACCEPTANCE_MODE_UNSPECIFIED: AcceptanceMode
ACCEPTANCE_MODE_COUPLED: AcceptanceMode
ACCEPTANCE_MODE_REJECTION: AcceptanceMode
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORTED: FinishReason
TOKEN_PROVENANCE_UNSPECIFIED: TokenProvenance
TOKEN_PROVENANCE_CACHED_DRAFT: TokenProvenance
TOKEN_PROVENANCE_LATE_DRAFT: TokenProvenance
TOKEN_PROVENANCE_BONUS: TokenProvenance
TOKEN_PROVENANCE_PLAIN: TokenProvenance
TOKEN_PROVENANCE_NGRAM_DRAFT: TokenProvenance
TOKEN_PROVENANCE_NEIGHBOUR_DRAFT: TokenProvenance
LOOKUP_RESULT_UNSPECIFIED: LookupResult
LOOKUP_RESULT_HIT: LookupResult
LOOKUP_RESULT_MISS: LookupResult
LOOKUP_RESULT_LATE: LookupResult
LOOKUP_RESULT_NOT_SPECULATED: LookupResult
TRAFFIC_CLASS_UNSPECIFIED: TrafficClass
TRAFFIC_CLASS_LATENCY: TrafficClass
TRAFFIC_CLASS_BALANCED: TrafficClass
TRAFFIC_CLASS_THROUGHPUT: TrafficClass

class ClassPolicy(_message.Message):
    __slots__ = ("max_lookahead_tokens", "break_even_batch", "acceptance")
    MAX_LOOKAHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BREAK_EVEN_BATCH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    max_lookahead_tokens: int
    break_even_batch: float
    acceptance: AcceptanceMode
    def __init__(self, max_lookahead_tokens: _Optional[int] = ..., break_even_batch: _Optional[float] = ..., acceptance: _Optional[_Union[AcceptanceMode, str]] = ...) -> None: ...

class TrafficPolicy(_message.Message):
    __slots__ = ("latency", "balanced", "throughput")
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    BALANCED_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    latency: ClassPolicy
    balanced: ClassPolicy
    throughput: ClassPolicy
    def __init__(self, latency: _Optional[_Union[ClassPolicy, _Mapping]] = ..., balanced: _Optional[_Union[ClassPolicy, _Mapping]] = ..., throughput: _Optional[_Union[ClassPolicy, _Mapping]] = ...) -> None: ...

class JsonObjectConstraint(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "seed", "choice", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "stop_token_ids", "json_schema", "json_object", "regex", "grammar", "acceptance", "cached_scale")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    CACHED_SCALE_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    seed: int
    choice: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: _containers.RepeatedCompositeFieldContainer[LogitBias]
    min_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    json_schema: str
    json_object: JsonObjectConstraint
    regex: str
    grammar: str
    acceptance: AcceptanceMode
    cached_scale: float
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., seed: _Optional[int] = ..., choice: _Optional[int] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logit_bias: _Optional[_Iterable[_Union[LogitBias, _Mapping]]] = ..., min_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., json_schema: _Optional[str] = ..., json_object: _Optional[_Union[JsonObjectConstraint, _Mapping]] = ..., regex: _Optional[str] = ..., grammar: _Optional[str] = ..., acceptance: _Optional[_Union[AcceptanceMode, str]] = ..., cached_scale: _Optional[float] = ...) -> None: ...

class LogitBias(_message.Message):
    __slots__ = ("token_id", "bias")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    bias: float
    def __init__(self, token_id: _Optional[int] = ..., bias: _Optional[float] = ...) -> None: ...

class TokenLogprobs(_message.Message):
    __slots__ = ("logprob", "top_token_ids", "top_logprobs")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    top_token_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprob: _Optional[float] = ..., top_token_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class ModelIdentity(_message.Message):
    __slots__ = ("name", "tokenizer_fingerprint", "usable_vocabulary_tokens", "context_limit_tokens", "dtype", "model_fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    USABLE_VOCABULARY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LIMIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    tokenizer_fingerprint: str
    usable_vocabulary_tokens: int
    context_limit_tokens: int
    dtype: str
    model_fingerprint: str
    def __init__(self, name: _Optional[str] = ..., tokenizer_fingerprint: _Optional[str] = ..., usable_vocabulary_tokens: _Optional[int] = ..., context_limit_tokens: _Optional[int] = ..., dtype: _Optional[str] = ..., model_fingerprint: _Optional[str] = ...) -> None: ...

class RoundReport(_message.Message):
    __slots__ = ("round", "num_draft_tokens", "num_accepted_tokens", "lookup", "wait_ns", "verify_ns", "accept_ns", "drafting_ns", "sent_bytes", "received_bytes", "started_ns", "drafting_started_ns")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_NS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_NS_FIELD_NUMBER: _ClassVar[int]
    DRAFTING_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STARTED_NS_FIELD_NUMBER: _ClassVar[int]
    DRAFTING_STARTED_NS_FIELD_NUMBER: _ClassVar[int]
    round: int
    num_draft_tokens: int
    num_accepted_tokens: int
    lookup: LookupResult
    wait_ns: int
    verify_ns: int
    accept_ns: int
    drafting_ns: int
    sent_bytes: int
    received_bytes: int
    started_ns: int
    drafting_started_ns: int
    def __init__(self, round: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., lookup: _Optional[_Union[LookupResult, str]] = ..., wait_ns: _Optional[int] = ..., verify_ns: _Optional[int] = ..., accept_ns: _Optional[int] = ..., drafting_ns: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., started_ns: _Optional[int] = ..., drafting_started_ns: _Optional[int] = ...) -> None: ...

class SpeculationReport(_message.Message):
    __slots__ = ("speculating", "reason", "num_rounds", "num_draft_tokens", "num_accepted_tokens", "cache_hits", "cache_misses", "cache_late", "rounds")
    SPECULATING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    CACHE_LATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    speculating: bool
    reason: str
    num_rounds: int
    num_draft_tokens: int
    num_accepted_tokens: int
    cache_hits: int
    cache_misses: int
    cache_late: int
    rounds: _containers.RepeatedCompositeFieldContainer[RoundReport]
    def __init__(self, speculating: _Optional[bool] = ..., reason: _Optional[str] = ..., num_rounds: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., cache_late: _Optional[int] = ..., rounds: _Optional[_Iterable[_Union[RoundReport, _Mapping]]] = ...) -> None: ...
