"""What verifier and speculator say to each other: the handshake and the Speculate stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from saguaro.types.sampling import AcceptanceMode, SamplingParams, TokenIds, VerificationOutcome

PROTOCOL_VERSION = 1


class NotSpeculatingReason(enum.IntEnum):
    """Why a speculator gives a sequence no speculations."""

    CONTEXT_LIMIT = 1
    OVERLOADED = 2
    UNKNOWN_SEQUENCE = 3
    DRAINING = 4
    MALFORMED = 5


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Who a model is. A verifier and its speculator must agree on tokens, verifiers of one gateway on everything."""

    name: str
    tokenizer_fingerprint: str
    usable_vocabulary_tokens: int
    context_limit_tokens: int
    dtype: str
    model_fingerprint: str = ""  # of config and weights, see `saguaro.engine.fingerprint`


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
    prefix_hash: int | None = None  # of all tokens that are committed by now, see `saguaro.core.prefix_hash`


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
    cached_scale: float = 1.0  # C for sequences in rejection mode that name none


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
