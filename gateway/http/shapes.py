"""How choices look in OpenAI's two kinds of completion, whole and in pieces."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from saguaro.answers import AnswerDelta
from saguaro.client import Answer
from saguaro.tools import ToolCallDelta
from saguaro.types import FinishReason, TokenIds, TokenLogprobs

# Bytes of one token.
Speller = Callable[[int], bytes]

_FINISH_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORTED: "abort"}
_LEAST_LOGPROB = -9999.0  # OpenAI's "very unlikely"; JSON has no infinity


class Shape(Protocol):
    """One kind of completion; an object serves one request."""

    id_prefix: str
    whole: str
    chunk: str

    def opening(self, choice: int) -> dict[str, Any] | None:
        """The first piece of a stream, if the kind has one."""

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """A piece of a stream."""

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """The last piece of one choice of a stream."""

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A whole choice."""


class ChatShape:
    """Chat completions."""

    id_prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, spell: Speller) -> None:
        self._spell = spell
        self._calling: set[int] = set()  # choices that called a tool

    def opening(self, choice: int) -> dict[str, Any] | None:
        """Says who speaks."""
        return {"index": choice, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """Text or calls, and the log-probabilities of the tokens that came with it; it may lag behind them."""
        said: dict[str, Any] = {} if delta.tool_calls and not delta.text else {"content": delta.text}
        if delta.tool_calls:
            self._calling.add(delta.choice)
            said["tool_calls"] = [_call_delta(call) for call in delta.tool_calls]
        return {
            "index": delta.choice,
            "delta": said,
            "logprobs": self._logprobs(delta.token_ids, delta.logprobs),
            "finish_reason": None,
        }

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """Says why."""
        why = _finish_reason(reason, calls=choice in self._calling)
        return {"index": choice, "delta": {}, "logprobs": None, "finish_reason": why}

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A message."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.tool_calls:
            message["content"] = answer.text or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.tool_calls
            ]
        return {
            "index": answer.choice,
            "message": message,
            "logprobs": self._logprobs(answer.token_ids, answer.logprobs),
            "finish_reason": _finish_reason(answer.finish_reason, calls=bool(answer.tool_calls)),
        }

    def _logprobs(self, token_ids: TokenIds, logprobs: tuple[TokenLogprobs, ...]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        content = [
            self._token(token_id, item.logprob) | {"top_logprobs": [self._token(*other) for other in item.top]}
            for token_id, item in zip(token_ids, logprobs, strict=True)
        ]
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelled = self._spell(token_id)
        return {"token": _text(spelled), "logprob": _finite(logprob), "bytes": list(spelled)}


class CompletionShape:
    """Text completions."""

    id_prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, spell: Speller) -> None:
        self._spell = spell
        self._offsets: defaultdict[int, int] = defaultdict(int)

    def opening(self, choice: int) -> dict[str, Any] | None:
        """None: text begins with text."""
        return None

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """Text, and the log-probabilities of the tokens that came with it; it may lag behind them."""
        logprobs = self._logprobs(delta.choice, delta.token_ids, delta.logprobs)
        return {"index": delta.choice, "text": delta.text, "logprobs": logprobs, "finish_reason": None}

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """Says why."""
        return {"index": choice, "text": "", "logprobs": None, "finish_reason": _FINISH_REASONS[reason]}

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A text."""
        return {
            "index": answer.choice,
            "text": answer.text,
            "logprobs": self._logprobs(answer.choice, answer.token_ids, answer.logprobs),
            "finish_reason": _FINISH_REASONS[answer.finish_reason],
        }

    def _logprobs(self, choice: int, token_ids: TokenIds, logprobs: tuple[TokenLogprobs, ...]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        tokens = [_text(self._spell(token_id)) for token_id in token_ids]
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(item.logprob) for item in logprobs],
            "top_logprobs": [
                {_text(self._spell(other)): _finite(logprob) for other, logprob in item.top} for item in logprobs
            ],
            "text_offset": self._next_offsets(choice, map(len, tokens)),
        }

    def _next_offsets(self, choice: int, lengths: Iterable[int]) -> list[int]:
        *offsets, self._offsets[choice] = itertools.accumulate(lengths, initial=self._offsets[choice])
        return offsets


def _finish_reason(reason: FinishReason, *, calls: bool) -> str:
    return "tool_calls" if calls and reason is FinishReason.STOP else _FINISH_REASONS[reason]


def _call_delta(call: ToolCallDelta) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments} if call.name else {"arguments": call.arguments}
    named = {"id": call.id, "type": "function"} if call.name else {}
    return {"index": call.index} | named | {"function": function}


def _text(spelled: bytes) -> str:
    return spelled.decode(errors="replace")


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
