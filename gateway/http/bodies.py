"""What clients of OpenAI's API send, and what it asks of the gateway.

Bounds are checked by `saguaro.validation`, as for every client; here is only what the contract between the services
does not know. Fields that no one knows are ignored, as compatible servers do.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from gateway.http.formats import ResponseFormat, constraint_from
from gateway.http.messages import MessageBody
from gateway.http.neutral import Neutral
from gateway.http.strict import FIRST_FAULT, AtMost, Strict
from gateway.http.tools import ToolBody, ToolChoice, tool_use
from saguaro.answers import AnswerRequest, ChatPrompt, Prompt, TextPrompt, TokenPrompt
from saguaro.errors import InvalidRequest
from saguaro.tools import ToolUse
from saguaro.types import AcceptanceMode, SamplingParams, TrafficClass
from saguaro.validation import MAX_BIASED_TOKENS, MAX_TOP_LOGPROBS

_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
_Value = TypeVar("_Value")
_TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]


class StreamOptions(Strict):
    """How a stream ends."""

    include_usage: Annotated[bool | None, Field(description="A last chunk with the usage.")] = None
    include_obfuscation: Annotated[None, Neutral(False)] = None


class _GenerationBody(Strict):
    """What both kinds of completion share. The second part is ours or vLLM's (`extra_body` of OpenAI's client)."""

    # The gateway's own field names to this body's, for errors.
    params: ClassVar[dict[str, str]] = {"json_schema": "response_format", "json_object": "response_format"}

    model: Annotated[str | None, Field(description="Default: the model that is served.")] = None
    temperature: Annotated[float | None, Field(description="0 is greedy. Default 1.")] = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], FIRST_FAULT] | None = None
    max_tokens: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], AtMost(MAX_BIASED_TOKENS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: Annotated[ResponseFormat | None, Field(description="Kept, not only asked for.")] = None
    user: str | None = None

    timeout: Annotated[
        float | None,
        Field(gt=0, description="Seconds for the whole answer; the gateway's own limit where that is less."),
    ] = None
    top_k: Annotated[int | None, Field(description="Number of tokens that stay; 0 keeps all.")] = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: Annotated[list[_TokenId], FIRST_FAULT] | None = None
    ignore_eos: bool | None = None
    regex: Annotated[str | None, Field(description="What the whole answer must match.")] = None
    grammar: Annotated[str | None, Field(description="The same, in GBNF or Lark.")] = None
    acceptance: Annotated[
        Literal["coupled", "rejection"] | None,
        Field(description="How draft tokens are accepted. Default: the verifier's."),
    ] = None
    cached_scale: Annotated[float | None, Field(description="C of Saguaro sampling, in rejection mode.")] = None
    traffic_class: Annotated[
        Literal["latency", "balanced", "throughput"] | None,
        Field(description="What the answer is for; the deployment's policy says what follows. Default: balanced."),
    ] = None
    disable_speculation: Annotated[bool | None, Field(description="Decode plainly.")] = None
    include_rounds: Annotated[bool | None, Field(description="Every round in metrics.speculative_decoding.")] = None
    session_id: Annotated[
        str | None, Field(description="The session that this is the next turn of; send its new messages only.")
    ] = None
    resumable: Annotated[
        bool | None, Field(description="A stream that GET /v1/streams/{request id} goes on with after a break.")
    ] = None

    @property
    def streams(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage. Raises InvalidRequest for stream options without a stream."""
        if self.stream_options is None:
            return False
        if not self.stream:
            raise InvalidRequest("stream_options", "stream_options is given, but stream is not true")
        return bool(self.stream_options.include_usage)

    def _request(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None,
        logprobs: bool,
        top_logprobs: int | None,
        tools: ToolUse | None = None,
    ) -> AnswerRequest:
        stop = self.stop or ()
        if self.resumable and not self.stream:
            raise InvalidRequest("resumable", "resumable is true, but stream is not")
        return AnswerRequest(
            prompt=prompt,
            sampling=self._sampling(),
            seed=self.seed,
            n=_or(self.n, 1),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            max_tokens=max_tokens,
            model=self.model or "",
            ignore_eos=bool(self.ignore_eos),
            disable_speculation=bool(self.disable_speculation),
            include_rounds=bool(self.include_rounds),
            logprobs=logprobs,
            top_logprobs=top_logprobs or 0,
            session_id=self.session_id,
            resumable=bool(self.resumable),
            tool_use=tools,
            traffic_class=TrafficClass[(self.traffic_class or "balanced").upper()],
        )

    def _sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=_or(self.temperature, 1.0),
            top_p=_or(self.top_p, 1.0),
            top_k=_or(self.top_k, 0),
            min_p=_or(self.min_p, 0.0),
            repetition_penalty=_or(self.repetition_penalty, 1.0),
            presence_penalty=_or(self.presence_penalty, 0.0),
            frequency_penalty=_or(self.frequency_penalty, 0.0),
            logit_bias=tuple((_bias_token(token), bias) for token, bias in (self.logit_bias or {}).items()),
            min_tokens=_or(self.min_tokens, 0),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            constraint=constraint_from(self.response_format, self.regex, self.grammar),
            acceptance=None if self.acceptance is None else AcceptanceMode[self.acceptance.upper()],
            cached_scale=self.cached_scale,
        )


class ChatBody(_GenerationBody):
    """POST /v1/chat/completions."""

    params: ClassVar[dict[str, str]] = _GenerationBody.params | {"prompt": "messages", "chat": "messages"}

    messages: Annotated[list[MessageBody], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int | None, Field(description="Newer name of max_tokens.")] = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    tools: Annotated[Annotated[list[ToolBody], FIRST_FAULT] | None, Field(description="What the model may call.")] = (
        None
    )
    tool_choice: Annotated[ToolChoice | None, Field(description="Whether it must; auto is the default.")] = None
    parallel_tool_calls: Annotated[bool | None, Field(description="False: at most one call.")] = None

    functions: Annotated[None, Neutral([])] = None
    function_call: Annotated[None, Neutral("none")] = None
    modalities: Annotated[None, Neutral(["text"])] = None
    audio: Annotated[None, Neutral()] = None
    prediction: Annotated[None, Neutral()] = None
    reasoning_effort: Annotated[None, Neutral("none")] = None
    verbosity: Annotated[None, Neutral("medium")] = None
    web_search_options: Annotated[None, Neutral()] = None
    service_tier: Annotated[None, Neutral("auto", "default")] = None
    store: Annotated[None, Neutral(False)] = None

    def answer_request(self, most_tokens: int | None) -> AnswerRequest:
        """Raises InvalidRequest where fields contradict each other. `most_tokens`: the deployment's limit, if any."""
        limits = {limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None}
        if len(limits) > 1:
            raise InvalidRequest(
                "max_tokens",
                f"max_tokens is {self.max_tokens}, max_completion_tokens {self.max_completion_tokens}; give one",
            )
        return self._request(
            ChatPrompt(tuple(message.message(index) for index, message in enumerate(self.messages))),
            max_tokens=limits.pop() if limits else None,
            logprobs=bool(self.logprobs),
            top_logprobs=self.top_logprobs,
            tools=tool_use(self.tools, self.tool_choice, self.parallel_tool_calls),
        )


class CompletionBody(_GenerationBody):
    """POST /v1/completions."""

    prompt: Annotated[
        str
        | Annotated[list[_TokenId], FIRST_FAULT]
        | Annotated[list[str], FIRST_FAULT]
        | Annotated[list[Annotated[list[_TokenId], FIRST_FAULT]], FIRST_FAULT],
        Field(description="Text or token ids as they stand; a list of several prompts is refused."),
    ]
    logprobs: Annotated[
        int | None, Field(ge=0, le=MAX_TOP_LOGPROBS, description="Log-probabilities, with that many alternatives.")
    ] = None

    suffix: Annotated[None, Neutral("")] = None
    echo: Annotated[None, Neutral(False)] = None
    best_of: Annotated[None, Neutral(1)] = None

    def answer_request(self, most_tokens: int | None) -> AnswerRequest:
        """Raises InvalidRequest where there is not exactly one prompt. `most_tokens`: the deployment's limit, if any,
        which OpenAI's default must not exceed.
        """
        default = min(_DEFAULT_COMPLETION_TOKENS, most_tokens or _DEFAULT_COMPLETION_TOKENS)
        return self._request(
            self._prompt(),
            max_tokens=_or(self.max_tokens, default),
            logprobs=self.logprobs is not None,
            top_logprobs=self.logprobs,
        )

    def _prompt(self) -> Prompt:
        prompt: Any = self.prompt
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise InvalidRequest("prompt", f"{len(prompt)} prompts are given; this server takes one a request")
            prompt = prompt[0]
        return TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(tuple(prompt))


def _or(given: _Value | None, default: _Value) -> _Value:
    return default if given is None else given


def _bias_token(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise InvalidRequest("logit_bias", f'logit_bias has the key "{text[:40]}"; keys are token ids, as in "42"')
    return int(text)
