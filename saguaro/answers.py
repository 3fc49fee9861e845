"""The nouns of the public door: what a client asks of a gateway and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.types import FinishReason, ModelIdentity, SpeculationReport, TokenIds, TokenProvenance


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it stands, no template."""

    text: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat; `role` is what the model's template knows: system, user, assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages, oldest first, to be put through the model's chat template."""

    messages: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids as they stand."""

    token_ids: TokenIds


Prompt = TextPrompt | ChatPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A prompt and how to go on from it.

    `seed` None lets the gateway draw one; `max_tokens` None means up to the context limit; `model` "" takes the one
    that is served.
    """

    prompt: Prompt
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    choice: int = 0
    max_tokens: int | None = None
    model: str = ""
    ignore_eos: bool = False
    disable_speculation: bool = False
    include_rounds: bool = False


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The request was admitted; `seed` is the one in force, `prompt_token_ids` the prompt as the target sees it."""

    request_id: str
    model: str
    seed: int
    prompt_token_ids: TokenIds


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """More of the answer: whole characters, and the tokens of one verification with where each came from."""

    text: str
    token_ids: TokenIds
    provenance: tuple[TokenProvenance, ...]


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    """The answer ended by itself; `text` is what was held back until then."""

    reason: FinishReason
    text: str
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport


AnswerEvent = AnswerStarted | AnswerDelta | AnswerFinished


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that can be asked for, and whether it is speculated now."""

    model: ModelIdentity
    speculating: bool
    not_speculating_reason: str
