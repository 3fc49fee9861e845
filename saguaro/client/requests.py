"""What a caller says in Python, as a request of the contract: pure, shared by both clients."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from saguaro.answers import AnswerRequest, ChatMessage, ChatPrompt, Prompt, TextPrompt, TokenPrompt
from saguaro.client.constraint import JsonSchema, constraint_of
from saguaro.client.texts import check_message, check_text, check_texts
from saguaro.client.tools import MessageLike, ToolLike, message_of, tool_use_of
from saguaro.errors import InvalidRequest
from saguaro.types import AcceptanceMode, SamplingParams, TrafficClass
from saguaro.v1 import gateway_pb2 as pb
from saguaro.validation import validate_answer_request
from saguaro.wire.gateway import answer_request_to_proto

DEFAULT_ADDRESS = "127.0.0.1:50051"

# Text as it stands; a chat as messages or {"role": ..., "content": ...}; token ids as they stand.
PromptLike = str | Sequence[MessageLike] | Sequence[int]

_UINT32_END = 1 << 32


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate`; the defaults are those of `AnswerRequest` and `SamplingParams`.

    Which tokens: temperature: 0 is greedy. top_p: share of probability that stays. top_k: number of tokens that stay, 0
    keeps all. min_p: least probability that stays, relative to the likeliest token's. repetition_penalty: above 1 makes
    tokens of prompt and output less likely. presence_penalty, frequency_penalty: subtracted from the logits of tokens
    of the output, once, or for each time. logit_bias: token id to what is added to its logit, -100 to 100. seed: None
    draws one; the result says which. n: answers to the one prompt, see `results`.

    Where it ends: max_tokens: None goes on to the context limit. min_tokens: no end before. stop: one string or
    several; the text ends before the first that it comes to hold. stop_token_ids: these end it, as the last token.
    ignore_eos: go on past the model's own end of the answer; not beside a constraint.

    What it must match, one of these: json_schema: text, or the schema as Python has it. json_object: True for any JSON
    object. regex. grammar: GBNF (rule "root") or Lark (rule "start"). What cannot be kept is refused. An answer that
    max_tokens or a stop string ends is only the beginning of what matches.

    What is told: logprobs: log-probability of each token by the raw distribution. prompt_logprobs: of the prompt's.
    top_logprobs: that many alternatives with each, at most 20. include_rounds: the result reports every round.
    include_text_lengths: deltas say how much of their text came with each token.

    What may be called, in a chat: tools: in OpenAI's shape. tool_choice: "auto" lets the model call or not, "required"
    takes nothing but calls, a name one call of that tool, "none" no call. parallel_tool_calls: False takes at most one.

    How: model: "" takes the one that is served. speculation: False decodes plainly. acceptance: "coupled", where it
    changes no token, or "rejection", where it changes no probability; the service's choice where None. cached_scale:
    C of Saguaro sampling in rejection mode, 0 to 1, likewise. traffic_class: "latency" where somebody waits for each
    token, "throughput" where nobody does, "balanced"; the deployment's policy says what follows. session_id: the next
    turn of that session, with its new messages alone. resumable: where the gateway keeps such answers, an answer whose
    connection breaks goes on after its last event; one that is given up goes on at the gateway for a while, too.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None
    n: int
    max_tokens: int | None
    min_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    json_schema: JsonSchema | None
    json_object: bool
    regex: str | None
    grammar: str | None
    logprobs: bool
    prompt_logprobs: bool
    top_logprobs: int
    include_rounds: bool
    include_text_lengths: bool
    tools: Sequence[ToolLike]
    tool_choice: str
    parallel_tool_calls: bool
    model: str
    speculation: bool
    acceptance: str | None
    cached_scale: float | None
    traffic_class: str
    session_id: str | None
    resumable: bool


def build_request(prompt: PromptLike, options: GenerateOptions) -> pb.GenerateRequest:
    """Raises InvalidRequest for what the contract's types cannot hold, or what no gateway would take.

    TypeError for a name that is no option, as Python has it for keyword arguments.
    """
    _check_names(options)
    stop = options.get("stop", ())
    use = tool_use_of(
        options.get("tools", ()), options.get("tool_choice", "auto"), options.get("parallel_tool_calls", True)
    )
    request = AnswerRequest(
        prompt=_prompt(prompt),
        sampling=_sampling(options),
        seed=options.get("seed"),
        n=options.get("n", 1),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        max_tokens=options.get("max_tokens"),
        model=options.get("model", ""),
        ignore_eos=options.get("ignore_eos", False),
        disable_speculation=not options.get("speculation", True),
        include_rounds=options.get("include_rounds", False),
        logprobs=options.get("logprobs", False),
        prompt_logprobs=options.get("prompt_logprobs", False),
        top_logprobs=options.get("top_logprobs", 0),
        include_text_lengths=options.get("include_text_lengths", False),
        tool_use=use,
        traffic_class=_traffic_class(options.get("traffic_class", "balanced")),
        session_id=options.get("session_id"),
        resumable=options.get("resumable", False),
    )
    if use is not None and not isinstance(request.prompt, ChatPrompt):
        raise InvalidRequest("chat.tools", "tools are given, but the prompt is no chat; give messages")
    check_texts(request)
    validate_answer_request(request)
    return answer_request_to_proto(request)


def _check_names(options: Mapping[str, object]) -> None:
    """A misspelt option must not be an absent one."""
    known = GenerateOptions.__annotations__.keys()
    for name in options:
        if name not in known:
            # `timeout_seconds` is no option of the request, but of the call; who writes `timeout` means it.
            close = difflib.get_close_matches(name, [*known, "timeout_seconds"], n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; it takes timeout_seconds, {', '.join(known)}"
            raise TypeError(f"generate() got an unexpected keyword argument '{name}'{hint}")


def session_request(messages: Sequence[MessageLike], model: str) -> pb.CreateSessionRequest:
    """Raises InvalidRequest for messages that no session begins with."""
    said = [message_of(item) for item in messages]
    if any(item.tool_calls or item.tool_call_id for item in said):
        raise InvalidRequest("messages", "a message has to do with tools; sessions keep text")
    check_text("model", model)
    for index, item in enumerate(said):
        check_message(item, f"messages.{index}")
    return pb.CreateSessionRequest(
        model=model, messages=[pb.ChatMessage(role=item.role, content=item.content) for item in said]
    )


def _sampling(options: GenerateOptions) -> SamplingParams:
    return SamplingParams(
        temperature=options.get("temperature", 0.0),
        top_p=options.get("top_p", 1.0),
        top_k=options.get("top_k", 0),
        seed=options.get("seed") or 0,
        min_p=options.get("min_p", 0.0),
        repetition_penalty=options.get("repetition_penalty", 1.0),
        presence_penalty=options.get("presence_penalty", 0.0),
        frequency_penalty=options.get("frequency_penalty", 0.0),
        logit_bias=tuple(options.get("logit_bias", {}).items()),
        min_tokens=options.get("min_tokens", 0),
        stop_token_ids=check_token_ids("stop_token_ids", options.get("stop_token_ids", ())),
        acceptance=_acceptance(options.get("acceptance")),
        cached_scale=options.get("cached_scale"),
        constraint=constraint_of(
            options.get("json_schema"), options.get("json_object", False), options.get("regex"), options.get("grammar")
        ),
    )


def _acceptance(name: str | None) -> AcceptanceMode | None:
    known = {mode.name.lower(): mode for mode in AcceptanceMode}
    if name is not None and check_text("sampling.acceptance", name) not in known:
        raise InvalidRequest("sampling.acceptance", f'acceptance is "{name}"; it must be one of {", ".join(known)}')
    return None if name is None else known[name]


def _traffic_class(name: str) -> TrafficClass:
    known = {item.name.lower(): item for item in TrafficClass}
    if check_text("traffic_class", name) not in known:
        raise InvalidRequest("traffic_class", f'traffic_class is "{name}"; it must be one of {", ".join(known)}')
    return known[name]


def check_token_ids(field: str, token_ids: Iterable[object]) -> tuple[int, ...]:
    """Raises InvalidRequest for what is no 32-bit unsigned integer."""
    ids = tuple(token_ids)
    for token_id in ids:
        if not isinstance(token_id, int) or not 0 <= token_id < _UINT32_END:
            raise InvalidRequest(field, f"{token_id!r} is not a token id: an integer from 0 to 2**32 - 1")
    return tuple(token_id for token_id in ids if isinstance(token_id, int))


def _prompt(prompt: PromptLike) -> Prompt:
    if isinstance(prompt, str | bytes):
        return TextPrompt(check_text("prompt", prompt))
    items = tuple(prompt)
    if not items:
        raise InvalidRequest("prompt", "the prompt is empty; give text, messages or token ids")
    if isinstance(items[0], ChatMessage | Mapping):
        return ChatPrompt(tuple(message_of(item) for item in items))
    return TokenPrompt(check_token_ids("prompt", items))
