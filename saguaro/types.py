"""The nouns that all services share: values only, no torch, no proto.

Enum values equal those of the contract in proto/saguaro/v1; `saguaro.wire` converts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

PROTOCOL_VERSION = 1

TokenIds = tuple[int, ...]


class AcceptanceMode(enum.IntEnum):
    """How draft tokens are accepted; every mode is lossless."""

    COUPLED = 1
    REJECTION = 2


class FinishReason(enum.IntEnum):
    """Why a generation ended; ABORTED when its caller told it to."""

    STOP = 1
    LENGTH = 2
    ABORTED = 3


class TokenProvenance(enum.IntEnum):
    """Where an emitted token came from."""

    CACHED_DRAFT = 1
    LATE_DRAFT = 2
    BONUS = 3
    PLAIN = 4
    NGRAM_DRAFT = 5


class LookupResult(enum.IntEnum):
    """What the speculation cache answered to a round's outcome."""

    HIT = 1
    MISS = 2
    LATE = 3
    NOT_SPECULATED = 4


class NotSpeculatingReason(enum.IntEnum):
    """Why a speculator gives a sequence no speculations."""

    CONTEXT_LIMIT = 1
    OVERLOADED = 2
    UNKNOWN_SEQUENCE = 3
    DRAINING = 4
    MALFORMED = 5


class ConstraintKind(enum.IntEnum):
    """In which language a constraint is written; values are the field numbers in the contract's SamplingParams."""

    JSON_SCHEMA = 20
    JSON_OBJECT = 21
    REGEX = 22
    GRAMMAR = 23


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the whole output must match. `text` is the schema, expression or grammar; empty for JSON_OBJECT."""

    kind: ConstraintKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep every token.

    `saguaro.core.penalties` says in which order these act. Until the output has `min_tokens`, the `stop_token_ids` are
    impossible; afterwards the first of them ends it.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    choice: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit), distinct ids
    min_tokens: int = 0
    stop_token_ids: TokenIds = ()
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class VerificationOutcome:
    """(k, t*): how many draft tokens the target accepted, and the token that it added after them."""

    num_accepted: int
    bonus_token: int


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a verifier and a speculator must agree on."""

    name: str
    tokenizer_fingerprint: str
    usable_vocabulary_tokens: int
    context_limit_tokens: int
    dtype: str


# --- the Speculate stream ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSequence:
    """Begin a sequence at the speculator; the outcome awaited next is (0, token) of `round`."""

    sequence_id: int
    epoch: int
    round: int
    token_ids: TokenIds
    sampling: SamplingParams
    num_prompt_tokens: int  # of token_ids; the others are output, as some penalties ask


@dataclass(frozen=True, slots=True)
class JustInTime:
    """The verifier waits for a speculation of that many tokens after the outcome it commits."""

    lookahead: int


@dataclass(frozen=True, slots=True)
class CommitRound:
    """A round's outcome and what the next round verifies."""

    sequence_id: int
    epoch: int
    round: int
    outcome: VerificationOutcome
    speculation: TokenIds | JustInTime


@dataclass(frozen=True, slots=True)
class CloseSequence:
    """End a sequence at the speculator."""

    sequence_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VerifierFrame:
    """One frame, verifier to speculator."""

    step_id: int
    lookahead: int
    budget: int
    soft_deadline_ns: int = 0
    opens: tuple[OpenSequence, ...] = ()
    commits: tuple[CommitRound, ...] = ()
    closes: tuple[CloseSequence, ...] = ()


@dataclass(frozen=True, slots=True)
class SparseDistribution:
    """The distribution that one draft token was drawn from: M distinct tokens and their probabilities, as they travel.

    Packed, because a round has thousands of pairs and few are ever looked at; `saguaro.core.proposal` judges those.
    """

    token_ids: bytes  # [M] uint32, little-endian
    probs: bytes  # [M] float16, little-endian


@dataclass(frozen=True, slots=True)
class SpeculationPiece:
    """Consecutive tokens, from `offset`, of the speculation prepared for one outcome.

    In rejection mode each token comes with the distribution that it was drawn from; in coupled mode there are none.
    """

    outcome: VerificationOutcome
    offset: int
    token_ids: TokenIds
    distributions: tuple[SparseDistribution, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeculationEntries:
    """Pieces for the outcomes of one round of one sequence; `complete` when no more will come for the round.

    `drafting_ns`: from taking up the round to sending this. `queued_ns`: from the last commit to taking it up.
    """

    sequence_id: int
    epoch: int
    round: int
    pieces: tuple[SpeculationPiece, ...]
    complete: bool
    drafting_ns: int = 0
    queued_ns: int = 0


@dataclass(frozen=True, slots=True)
class SequenceStatus:
    """The speculator's word that it does not speculate a sequence."""

    sequence_id: int
    epoch: int
    reason: NotSpeculatingReason


@dataclass(frozen=True, slots=True)
class SpeculatorFrame:
    """One frame, speculator to verifier."""

    entries: tuple[SpeculationEntries, ...] = ()
    statuses: tuple[SequenceStatus, ...] = ()
    free_kv_blocks: int = 0


@dataclass(frozen=True, slots=True)
class SpeculatorInfo:
    """A speculator's answer to the handshake."""

    protocol_version: int
    model: ModelIdentity
    acceptance_modes: tuple[AcceptanceMode, ...]
    max_lookahead: int
    max_budget: int
    num_kv_blocks: int
    free_kv_blocks: int
    num_sequences: int


# --- generations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A tokenized prompt and how to go on from it; `max_tokens` None means up to the context limit.

    `logprobs` and `prompt_logprobs` ask for `TokenLogprobs` of the output and of the prompt, with `top_logprobs`
    alternatives each.
    """

    request_id: str
    prompt: TokenIds
    sampling: SamplingParams = SamplingParams()
    model: str = ""
    max_tokens: int | None = None
    ignore_eos: bool = False
    disable_speculation: bool = False
    include_rounds: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One verification as its sequence lived it. `wait_ns`: from the previous commit to the start of this forward.

    `started_ns`, of the forward, and `drafting_started_ns`, of the drafting of what it verified, count from the time
    when the request came to the verifier. The latter is an instant of another process, so it is an estimate
    (`verifier_service.traffic` says how it is made), None where nothing was drafted. `sent_bytes` and `received_bytes`
    are those of this sequence in the frames between verifier and speculator since the round before, the commit that
    began this round among them; what belongs to no sequence is shared out evenly, gRPC's own framing is left out.
    """

    round: int
    num_draft_tokens: int
    num_accepted_tokens: int
    lookup: LookupResult
    wait_ns: int
    verify_ns: int
    accept_ns: int
    drafting_ns: int
    sent_bytes: int = 0
    received_bytes: int = 0
    started_ns: int = 0
    drafting_started_ns: int | None = None


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """What speculation did for one generation. Round 0, the prompt's own forward, counts as no round."""

    speculating: bool
    reason: str = ""
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_late: int = 0
    rounds: tuple[RoundReport, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """The generation was admitted; `seed` and `acceptance_mode` are those in force."""

    seed: int
    acceptance_mode: AcceptanceMode = AcceptanceMode.COUPLED


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of one token and of the likeliest ones in its place, best first, by the target's own row.

    Of the model's raw distribution, as OpenAI and vLLM have it: log_softmax of the logits before penalties, bias,
    temperature and truncation. So a token that was chosen may have a low one, and a banned one a high one.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, log-probability)


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """`TokenLogprobs` of the prompt's tokens from the second on; nothing predicts the first."""

    logprobs: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens that one verification emitted, and where each came from; one of `logprobs` a token where asked for."""

    token_ids: TokenIds
    provenance: tuple[TokenProvenance, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """The generation ended: by itself, or because it was told to."""

    reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport


GenerationEvent = GenerationStarted | PromptLogprobs | TokenRun | GenerationFinished


@dataclass(frozen=True, slots=True)
class VerifierInfo:
    """Who a verifier is and whether it is speculated."""

    protocol_version: int
    model: ModelIdentity
    eos_token_ids: TokenIds
    speculating: bool
    not_speculating_reason: str
    speculator_address: str
    lookahead: int
    budget: int
    break_even_batch: float = 0.0
    cache_hit_rate: float = 0.0
    predicted_rate: float = 0.0
    predicted_plain_rate: float = 0.0
