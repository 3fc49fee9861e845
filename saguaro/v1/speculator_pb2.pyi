from saguaro.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NotSpeculatingReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOT_SPECULATING_REASON_UNSPECIFIED: _ClassVar[NotSpeculatingReason]
    NOT_SPECULATING_REASON_CONTEXT_LIMIT: _ClassVar[NotSpeculatingReason]
    NOT_SPECULATING_REASON_OVERLOADED: _ClassVar[NotSpeculatingReason]
    NOT_SPECULATING_REASON_UNKNOWN_SEQUENCE: _ClassVar[NotSpeculatingReason]
    NOT_SPECULATING_REASON_DRAINING: _ClassVar[NotSpeculatingReason]
    NOT_SPECULATING_REASON_MALFORMED: _ClassVar[NotSpeculatingReason]
NOT_SPECULATING_REASON_UNSPECIFIED: NotSpeculatingReason
NOT_SPECULATING_REASON_CONTEXT_LIMIT: NotSpeculatingReason
NOT_SPECULATING_REASON_OVERLOADED: NotSpeculatingReason
NOT_SPECULATING_REASON_UNKNOWN_SEQUENCE: NotSpeculatingReason
NOT_SPECULATING_REASON_DRAINING: NotSpeculatingReason
NOT_SPECULATING_REASON_MALFORMED: NotSpeculatingReason

class SpeculateRequest(_message.Message):
    __slots__ = ("step_id", "lookahead_tokens", "budget_outcomes", "soft_deadline_ns", "opens", "commits", "closes", "cached_scale")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    SOFT_DEADLINE_NS_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    CACHED_SCALE_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    lookahead_tokens: int
    budget_outcomes: int
    soft_deadline_ns: int
    opens: _containers.RepeatedCompositeFieldContainer[OpenSequence]
    commits: _containers.RepeatedCompositeFieldContainer[CommitRound]
    closes: _containers.RepeatedCompositeFieldContainer[CloseSequence]
    cached_scale: float
    def __init__(self, step_id: _Optional[int] = ..., lookahead_tokens: _Optional[int] = ..., budget_outcomes: _Optional[int] = ..., soft_deadline_ns: _Optional[int] = ..., opens: _Optional[_Iterable[_Union[OpenSequence, _Mapping]]] = ..., commits: _Optional[_Iterable[_Union[CommitRound, _Mapping]]] = ..., closes: _Optional[_Iterable[_Union[CloseSequence, _Mapping]]] = ..., cached_scale: _Optional[float] = ...) -> None: ...

class OpenSequence(_message.Message):
    __slots__ = ("sequence_id", "epoch", "round", "token_ids", "sampling", "num_prompt_tokens")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    epoch: int
    round: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    num_prompt_tokens: int
    def __init__(self, sequence_id: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., num_prompt_tokens: _Optional[int] = ...) -> None: ...

class CommitRound(_message.Message):
    __slots__ = ("sequence_id", "epoch", "round", "num_accepted", "bonus_token_id", "explicit", "just_in_time", "prefix_hash")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    BONUS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_FIELD_NUMBER: _ClassVar[int]
    JUST_IN_TIME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HASH_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    epoch: int
    round: int
    num_accepted: int
    bonus_token_id: int
    explicit: ExplicitSpeculation
    just_in_time: JustInTime
    prefix_hash: int
    def __init__(self, sequence_id: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., num_accepted: _Optional[int] = ..., bonus_token_id: _Optional[int] = ..., explicit: _Optional[_Union[ExplicitSpeculation, _Mapping]] = ..., just_in_time: _Optional[_Union[JustInTime, _Mapping]] = ..., prefix_hash: _Optional[int] = ...) -> None: ...

class ExplicitSpeculation(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class JustInTime(_message.Message):
    __slots__ = ("lookahead_tokens",)
    LOOKAHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    lookahead_tokens: int
    def __init__(self, lookahead_tokens: _Optional[int] = ...) -> None: ...

class CloseSequence(_message.Message):
    __slots__ = ("sequence_id", "epoch")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    epoch: int
    def __init__(self, sequence_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class SpeculateResponse(_message.Message):
    __slots__ = ("entries", "statuses", "free_kv_blocks")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    FREE_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SpeculationEntries]
    statuses: _containers.RepeatedCompositeFieldContainer[SequenceStatus]
    free_kv_blocks: int
    def __init__(self, entries: _Optional[_Iterable[_Union[SpeculationEntries, _Mapping]]] = ..., statuses: _Optional[_Iterable[_Union[SequenceStatus, _Mapping]]] = ..., free_kv_blocks: _Optional[int] = ...) -> None: ...

class SpeculationEntries(_message.Message):
    __slots__ = ("sequence_id", "epoch", "round", "num_accepted", "bonus_token_id", "offset", "length", "token_ids", "complete", "drafting_ns", "num_pairs", "pair_token_ids", "pair_probs", "queued_ns")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    BONUS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    DRAFTING_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_PAIRS_FIELD_NUMBER: _ClassVar[int]
    PAIR_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PAIR_PROBS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_NS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    epoch: int
    round: int
    num_accepted: _containers.RepeatedScalarFieldContainer[int]
    bonus_token_id: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    complete: bool
    drafting_ns: int
    num_pairs: _containers.RepeatedScalarFieldContainer[int]
    pair_token_ids: bytes
    pair_probs: bytes
    queued_ns: int
    def __init__(self, sequence_id: _Optional[int] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., num_accepted: _Optional[_Iterable[int]] = ..., bonus_token_id: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., complete: _Optional[bool] = ..., drafting_ns: _Optional[int] = ..., num_pairs: _Optional[_Iterable[int]] = ..., pair_token_ids: _Optional[bytes] = ..., pair_probs: _Optional[bytes] = ..., queued_ns: _Optional[int] = ...) -> None: ...

class SequenceStatus(_message.Message):
    __slots__ = ("sequence_id", "epoch", "reason")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    epoch: int
    reason: NotSpeculatingReason
    def __init__(self, sequence_id: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[_Union[NotSpeculatingReason, str]] = ...) -> None: ...

class GetSpeculatorInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSpeculatorInfoResponse(_message.Message):
    __slots__ = ("protocol_version", "model", "acceptance_modes", "max_lookahead_tokens", "max_budget_outcomes", "num_kv_blocks", "free_kv_blocks", "num_sequences")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_MODES_FIELD_NUMBER: _ClassVar[int]
    MAX_LOOKAHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_BUDGET_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FREE_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    model: _common_pb2.ModelIdentity
    acceptance_modes: _containers.RepeatedScalarFieldContainer[_common_pb2.AcceptanceMode]
    max_lookahead_tokens: int
    max_budget_outcomes: int
    num_kv_blocks: int
    free_kv_blocks: int
    num_sequences: int
    def __init__(self, protocol_version: _Optional[int] = ..., model: _Optional[_Union[_common_pb2.ModelIdentity, _Mapping]] = ..., acceptance_modes: _Optional[_Iterable[_Union[_common_pb2.AcceptanceMode, str]]] = ..., max_lookahead_tokens: _Optional[int] = ..., max_budget_outcomes: _Optional[int] = ..., num_kv_blocks: _Optional[int] = ..., free_kv_blocks: _Optional[int] = ..., num_sequences: _Optional[int] = ...) -> None: ...
