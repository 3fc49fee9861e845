"""What a caller says in Python, as a request of the contract: pure, shared by both clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from saguaro.answers import AnswerRequest, ChatMessage, ChatPrompt, Prompt, TextPrompt, TokenPrompt
from saguaro.errors import InvalidRequest
from saguaro.types import SamplingParams
from saguaro.v1 import gateway_pb2 as pb
from saguaro.validation import validate_sampling
from saguaro.wire.gateway import answer_request_to_proto

DEFAULT_ADDRESS = "127.0.0.1:50051"

# Text as it stands; a chat as messages or {"role": ..., "content": ...}; token ids as they stand.
PromptLike = str | Sequence[ChatMessage] | Sequence[Mapping[str, str]] | Sequence[int]

_UINT32_END = 1 << 32


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate`; the defaults are those of `AnswerRequest`.

    temperature: 0 is greedy. top_p: share of probability that stays. top_k: number of tokens that stay, 0 keeps all.
    max_tokens: None goes on to the context limit. seed: None draws one; the result says which. model: "" takes the
    one that is served. ignore_eos: go on past the end of the answer. speculation: False decodes plainly, to the
    same tokens. include_rounds: the result reports every round.
    """

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int | None
    seed: int | None
    model: str
    ignore_eos: bool
    speculation: bool
    include_rounds: bool


def build_request(prompt: PromptLike, options: GenerateOptions) -> pb.GenerateRequest:
    """Raises InvalidRequest for what the contract's types cannot hold, or what no gateway would take."""
    request = AnswerRequest(
        prompt=_prompt(prompt),
        temperature=options.get("temperature", 0.0),
        top_p=options.get("top_p", 1.0),
        top_k=options.get("top_k", 0),
        seed=options.get("seed"),
        max_tokens=options.get("max_tokens"),
        model=options.get("model", ""),
        ignore_eos=options.get("ignore_eos", False),
        disable_speculation=not options.get("speculation", True),
        include_rounds=options.get("include_rounds", False),
    )
    validate_sampling(SamplingParams(request.temperature, request.top_p, request.top_k, request.seed or 0))
    if request.max_tokens is not None and not 0 < request.max_tokens < _UINT32_END:
        raise InvalidRequest("max_tokens", f"max_tokens is {request.max_tokens}; it must be at least 1, in 32 bits")
    return answer_request_to_proto(request)


def check_token_ids(field: str, token_ids: Iterable[object]) -> tuple[int, ...]:
    """Raises InvalidRequest for what is no 32-bit unsigned integer."""
    ids = tuple(token_ids)
    for token_id in ids:
        if not isinstance(token_id, int) or not 0 <= token_id < _UINT32_END:
            raise InvalidRequest(field, f"{token_id!r} is not a token id: an integer from 0 to 2**32 - 1")
    return tuple(token_id for token_id in ids if isinstance(token_id, int))


def _prompt(prompt: PromptLike) -> Prompt:
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    items = tuple(prompt)
    if not items:
        raise InvalidRequest("prompt", "the prompt is empty; give text, messages or token ids")
    if isinstance(items[0], ChatMessage | Mapping):
        return ChatPrompt(tuple(_message(item) for item in items))
    return TokenPrompt(check_token_ids("prompt", items))


def _message(item: object) -> ChatMessage:
    if isinstance(item, ChatMessage):
        return item
    if isinstance(item, Mapping) and set(item) == {"role", "content"}:
        return ChatMessage(item["role"], item["content"])
    raise InvalidRequest("prompt", f'{item!r} is not a message: give {{"role": ..., "content": ...}}')
