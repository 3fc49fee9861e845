"""The nouns of the public door: what a client asks of a gateway and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

from saguaro.tools import ToolCall, ToolCallDelta, ToolUse
from saguaro.types import (
    AcceptanceMode,
    FinishReason,
    ModelIdentity,
    SamplingParams,
    SpeculationReport,
    TokenIds,
    TokenLogprobs,
    TokenProvenance,
    TrafficClass,
)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it stands, no template."""

    text: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat; `role` is what the model's template knows: system, user, assistant, tool.

    `tool_calls` are what an assistant called, `tool_call_id` says which call a tool's message answers.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


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

    `seed` takes the place of `sampling.seed`; None lets the gateway draw one. `max_tokens` None means up to the context
    limit; `model` "" takes the one that is served. `n` choices have the noise of `sampling.choice`, + 1, + 2, ...
    `top_logprobs` alternatives come with each of `logprobs` and `prompt_logprobs`, see `saguaro.types.TokenLogprobs`.
    `session_id` makes it the next turn of a session, with the new messages alone as prompt. `resumable` lets the answer
    go on for a while without a client that was cut off.
    `include_text_lengths` asks for those of `AnswerDelta`. `tool_use`: what may be called; the template shows it to the
    model, so the prompt must be a chat.
    """

    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    model: str = ""
    ignore_eos: bool = False
    disable_speculation: bool = False
    include_rounds: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    top_logprobs: int = 0
    session_id: str | None = None
    resumable: bool = False
    include_text_lengths: bool = False
    tool_use: ToolUse | None = None
    traffic_class: TrafficClass = TrafficClass.BALANCED


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The request was admitted; `seed` and `acceptance_mode` are those in force, `prompt_token_ids` the prompt as the
    target sees it.
    """

    request_id: str
    model: str
    seed: int
    prompt_token_ids: TokenIds
    acceptance_mode: AcceptanceMode = AcceptanceMode.COUPLED


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """The prompt was computed: `logprobs` of its tokens from the second on."""

    logprobs: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """More of one choice: whole characters, and tokens with where each came from and, where asked for, logprobs.

    The text lags behind the tokens while a character, or what may become a stop string, is incomplete. Tool calls are
    no part of the text. `text_lengths`: how many characters of it came with each token, where asked for and where
    nothing can be called. `text_offsets`: the character of the choice's text that each token begins at, with logprobs
    and inside of the gateway alone; those of a stop string may lie behind the text's end.
    """

    text: str
    token_ids: TokenIds
    provenance: tuple[TokenProvenance, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    choice: int = 0
    tool_calls: tuple[ToolCallDelta, ...] = ()
    text_lengths: tuple[int, ...] = ()
    text_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    """A choice ended; `text` and `tool_calls` are what was held back until then. Its tokens end with the one that ended
    it.
    """

    reason: FinishReason
    text: str
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport
    choice: int = 0
    tool_calls: tuple[ToolCallDelta, ...] = ()


AnswerEvent = AnswerStarted | AnswerPrompt | AnswerDelta | AnswerFinished


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that can be asked for, and whether it is speculated now."""

    model: ModelIdentity
    speculating: bool
    not_speculating_reason: str
