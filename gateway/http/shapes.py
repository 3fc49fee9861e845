"""How choices look in OpenAI's two kinds of completion, whole and in pieces."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from saguaro.answers import AnswerDelta
from saguaro.client import Answer
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

    def opening(self, choice: int) -> dict[str, Any] | None:
        """Says who speaks."""
        return {"index": choice, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def piece(self, delta: AnswerDelta) -> dict[str, Any]:
        """Text, and the log-probabilities of the tokens that came with it; it may lag behind them."""
        return {
            "index": delta.choice,
            "delta": {"content": delta.text},
            "logprobs": self._logprobs(delta.token_ids, delta.logprobs),
            "finish_reason": None,
        }

    def ending(self, choice: int, reason: FinishReason) -> dict[str, Any]:
        """Says why."""
        return {"index": choice, "delta": {}, "logprobs": None, "finish_reason": _FINISH_REASONS[reason]}

    def choice(self, answer: Answer) -> dict[str, Any]:
        """A message."""
        return {
            "index": answer.choice,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": self._logprobs(answer.token_ids, answer.logprobs),
            "finish_reason": _FINISH_REASONS[answer.finish_reason],
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


def _text(spelled: bytes) -> str:
    return spelled.decode(errors="replace")


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
