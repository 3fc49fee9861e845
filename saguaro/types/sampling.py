"""How a token is chosen, and what a verification found."""

from __future__ import annotations

import enum
from dataclasses import dataclass

TokenIds = tuple[int, ...]


class AcceptanceMode(enum.IntEnum):
    """How draft tokens are accepted; every mode is lossless."""

    COUPLED = 1
    REJECTION = 2


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
    impossible; afterwards the first of them ends it. `acceptance` and `cached_scale`, C of Saguaro sampling in
    rejection mode, are the deployment's where they are None.
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
    acceptance: AcceptanceMode | None = None
    cached_scale: float | None = None


@dataclass(frozen=True, slots=True)
class VerificationOutcome:
    """(k, t*): how many draft tokens the target accepted, and the token that it added after them."""

    num_accepted: int
    bonus_token: int
