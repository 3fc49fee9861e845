"""What is done with prompts in the workers of `text_workers`, and how long a prompt may be."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.text import TextModel
from saguaro.answers import ChatMessage, ChatPrompt, Prompt, TextPrompt
from saguaro.errors import InvalidRequest
from saguaro.tools import Tool
from saguaro.types import TokenIds


@dataclass(frozen=True, slots=True)
class PromptBound:
    """A prompt of `max_tokens` tokens, the context limit, has at most `max_token_bytes` bytes in each.

    So a text is known to be too long before it is tokenized, which takes seconds for some megabytes.
    """

    max_tokens: int
    max_token_bytes: int

    @property
    def max_bytes(self) -> int:
        """The longest text that can fit."""
        return self.max_tokens * self.max_token_bytes

    def check_text(self, text: str, what: str = "the prompt") -> None:
        """Raises InvalidRequest for a text that cannot fit."""
        if 4 * len(text) > self.max_bytes and (size := len(text.encode(errors="replace"))) > self.max_bytes:
            raise InvalidRequest("prompt", f"{what} has {size} bytes; {self.reason()}")

    def check_tokens(self, num_tokens: int) -> None:
        """Raises InvalidRequest for a prompt that fills the context or more."""
        if num_tokens >= self.max_tokens:
            raise InvalidRequest(
                "prompt",
                f"the prompt has {num_tokens} tokens; the context limit is {self.max_tokens}, "
                "and at least 1 token must be left for the answer",
            )

    def reason(self) -> str:
        """Why a longer text is refused, for the end of a sentence."""
        return (
            f"the context limit is {self.max_tokens} tokens, of at most {self.max_token_bytes} bytes each, so at most "
            f"{self.max_bytes} bytes are taken"
        )


def prompt_ids(text: TextModel, prompt: Prompt, tools: Sequence[Tool], bound: PromptBound) -> array[int]:
    """Token ids of a prompt within the bound. Raises InvalidRequest for a longer one."""
    match prompt:
        case ChatPrompt(messages):
            ids = text.encode_rendered(rendered_within(text, messages, bound, tools))
        case _:
            ids = text.encode_prompt(prompt, tools)
    bound.check_tokens(len(ids))
    return packed(ids)


def text_ids(text: TextModel, written: str) -> array[int]:
    """Token ids of a text as it stands."""
    return packed(text.encode(written))


def chat_length(text: TextModel, messages: Sequence[ChatMessage]) -> int:
    """About how many tokens the messages have. They are not put through the template: it may want a later one too."""
    return sum(len(text.encode_rendered(f"{message.role}\n{message.content}")) for message in messages)


def decoded(text: TextModel, token_ids: array[int]) -> str:
    """Text of the ids; special tokens print nothing."""
    return text.decode(list(token_ids))


def rendered_within(
    text: TextModel, messages: Sequence[ChatMessage], bound: PromptBound, tools: Sequence[Tool] = ()
) -> str:
    """The chat as the template writes it. Raises InvalidRequest where that is too long to fit."""
    rendered = text.render(messages, tools, max_bytes=bound.max_bytes, reason=bound.reason())
    bound.check_text(rendered, "the chat as the model's template writes it")
    return rendered


def size_of(prompt: Prompt) -> int:
    """About how many bytes of text the prompt has."""
    match prompt:
        case TextPrompt(written):
            return len(written)
        case ChatPrompt(messages):
            return chat_bytes(messages)
        case _:
            return 0


def chat_bytes(messages: Sequence[ChatMessage]) -> int:
    """About how many bytes of text the messages have."""
    return sum(len(message.content) for message in messages)


def packed(token_ids: TokenIds) -> array[int]:
    """Ids as they travel between processes: 4 bytes each, read and written in one go."""
    return array("I", token_ids)
