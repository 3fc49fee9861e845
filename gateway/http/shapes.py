"""How choices look in OpenAI's two kinds of completion, whole and in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.http.listing import Listed, Listing, Vocabulary, shown
from saguaro.answers import AnswerDelta
from saguaro.client import Answer
from saguaro.tools import ToolCallDelta
from saguaro.types import FinishReason

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

    def choice(self, answer: Answer, deltas: Sequence[AnswerDelta]) -> dict[str, Any]:
        """A whole choice, which came in `deltas`."""


class ChatShape:
    """Chat completions."""

    id_prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._spell = vocabulary.token_bytes
        self._listing = Listing(vocabulary.special_ids)
        self._calling: set[int] = set()  # choices that called a tool

    def opening(self, choice: int) -> dict[str, Any] | None:
        """Says who speaks."""
        return {"index": choice, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """Text or calls, and the log-probabilities of the tokens that make it."""
        said: dict[str, Any] = {} if delta.tool_calls and not delta.text else {"content": delta.text}
        if delta.tool_calls:
            self._calling.add(delta.choice)
            said["tool_calls"] = [_call_delta(call) for call in delta.tool_calls]
        return {
            "index": delta.choice,
            "delta": said,
            "logprobs": self._logprobs(self._listing.take(delta)),
            "finish_reason": None,
        }

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """Says why."""
        why = _finish_reason(reason, calls=choice in self._calling)
        logprobs = self._logprobs(self._listing.end(choice))
        return {"index": choice, "delta": {}, "logprobs": logprobs, "finish_reason": why}

    def choice(self, answer: Answer, deltas: Sequence[AnswerDelta]) -> dict[str, Any]:
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
            "logprobs": self._logprobs(self._listing.whole(answer.choice, deltas)),
            "finish_reason": _finish_reason(answer.finish_reason, calls=bool(answer.tool_calls)),
        }

    def _logprobs(self, listed: Sequence[Listed]) -> dict[str, Any] | None:
        if not listed:
            return None
        content = [
            self._token(item.token_id, item.logprobs.logprob)
            | {"top_logprobs": [self._token(*other) for other in item.logprobs.top]}
            for item in listed
        ]
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelled = self._spell(token_id)
        return {"token": shown(spelled), "logprob": _finite(logprob), "bytes": list(spelled)}


class CompletionShape:
    """Text completions."""

    id_prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._spell = vocabulary.token_bytes
        self._listing = Listing(vocabulary.special_ids)

    def opening(self, choice: int) -> dict[str, Any] | None:
        """None: text begins with text."""
        return None

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """Text, and the log-probabilities of the tokens that make it."""
        logprobs = self._logprobs(self._listing.take(delta))
        return {"index": delta.choice, "text": delta.text, "logprobs": logprobs, "finish_reason": None}

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """Says why."""
        logprobs = self._logprobs(self._listing.end(choice))
        return {"index": choice, "text": "", "logprobs": logprobs, "finish_reason": _FINISH_REASONS[reason]}

    def choice(self, answer: Answer, deltas: Sequence[AnswerDelta]) -> dict[str, Any]:
        """A text."""
        return {
            "index": answer.choice,
            "text": answer.text,
            "logprobs": self._logprobs(self._listing.whole(answer.choice, deltas)),
            "finish_reason": _FINISH_REASONS[answer.finish_reason],
        }

    def _logprobs(self, listed: Sequence[Listed]) -> dict[str, Any] | None:
        if not listed:
            return None
        return {
            "tokens": [shown(self._spell(item.token_id)) for item in listed],
            "token_logprobs": [_finite(item.logprobs.logprob) for item in listed],
            "top_logprobs": [self._by_text(item.logprobs.top) for item in listed],
            "text_offset": [item.offset for item in listed],
        }

    def _by_text(self, top: Sequence[tuple[int, float]]) -> dict[str, float]:
        """The likeliest of tokens that look alike has their text, the others have their ids."""
        named: dict[str, float] = {}
        for token_id, logprob in top:
            text = shown(self._spell(token_id))
            named[f"token_id:{token_id}" if text in named else text] = _finite(logprob)
        return named


def _finish_reason(reason: FinishReason, *, calls: bool) -> str:
    return "tool_calls" if calls and reason is FinishReason.STOP else _FINISH_REASONS[reason]


def _call_delta(call: ToolCallDelta) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments} if call.name else {"arguments": call.arguments}
    named = {"id": call.id, "type": "function"} if call.name else {}
    return {"index": call.index} | named | {"function": function}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
