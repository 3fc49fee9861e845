"""A generation as its caller sees it: the request, its events, and how its rounds went."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from saguaro.types.link import ModelIdentity
from saguaro.types.policy import TrafficClass, TrafficPolicy
from saguaro.types.sampling import AcceptanceMode, SamplingParams, TokenIds


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
    NEIGHBOUR_DRAFT = 6


class LookupResult(enum.IntEnum):
    """What the speculation cache answered to a round's outcome."""

    HIT = 1
    MISS = 2
    LATE = 3
    NOT_SPECULATED = 4


@dataclass(frozen=True, slots=True)
class Resumption:
    """How far a generation had come at another verifier: what it emitted after the prompt, in how many rounds."""

    token_ids: TokenIds
    num_rounds: int  # 0 without tokens


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A tokenized prompt and how to go on from it; `max_tokens` None means up to the context limit.

    `logprobs` and `prompt_logprobs` ask for `TokenLogprobs` of the output and of the prompt, with `top_logprobs`
    alternatives each. With a `resumption` the verifier goes on as if it had emitted those tokens itself: penalties,
    `max_tokens`, `min_tokens`, grammar and noise positions count from the prompt.
    """

    request_id: str
    prompt: TokenIds
    sampling: SamplingParams = field(default_factory=SamplingParams)
    model: str = ""
    max_tokens: int | None = None
    ignore_eos: bool = False
    disable_speculation: bool = False
    include_rounds: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    top_logprobs: int = 0
    traffic_class: TrafficClass = TrafficClass.BALANCED
    resumption: Resumption | None = None


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
    """Tokens that one verification emitted, where each came from, and how the verification went.

    One of `logprobs` a token where asked for.
    """

    token_ids: TokenIds
    provenance: tuple[TokenProvenance, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    report: RoundReport | None = None


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """The generation ended: by itself, or because it was told to.

    Of a resumed one, tokens count from the prompt, and the report from the resumption.
    """

    reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport


GenerationEvent = GenerationStarted | PromptLogprobs | TokenRun | GenerationFinished

# Takes the events of one generation; an exception is its last.
EventSink = Callable[[GenerationEvent | Exception], None]


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
    num_audited: int = 0
    num_mismatched: int = 0
    classes: TrafficPolicy = field(default_factory=TrafficPolicy)
