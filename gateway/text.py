"""A model's text side: its tokenizer and chat template, from its folder, without transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gateway.chat_template import ChatTemplate
from gateway.token_bytes import byte_speller
from gateway.tools import Calling
from saguaro.answers import ChatMessage, ChatPrompt, Prompt, TextPrompt, TokenPrompt
from saguaro.errors import ConfigurationError, InvalidRequest
from saguaro.model_paths import refuse_lfs_pointer
from saguaro.tools import Tool, ToolUse
from saguaro.types import TokenIds

_CACHED_SPELLINGS = 1 << 16  # tokens of a model


class TextModel:
    """Text to token ids and back, as the model's own tokenizer does it. Calls block; threads may share one."""

    def __init__(self, tokenizer: Any, chat_template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self._spell = byte_speller(tokenizer)
        self.token_bytes = lru_cache(_CACHED_SPELLINGS)(self._token_bytes)
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.vocabulary_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @classmethod
    def from_folder(cls, folder: Path) -> TextModel:
        """Raises ConfigurationError where the folder lacks a tokenizer.json that can be read."""
        return cls(read_tokenizer(folder), ChatTemplate.from_folder(folder))

    @cached_property
    def longest_token_bytes(self) -> int:
        """The most bytes of text that one token stands for. Takes some tenths of a second for a large vocabulary."""
        spellings = self._tokenizer.get_vocab(with_added_tokens=True)
        return max(max(len(self._spell(spelling)), 1) for spelling in spellings)

    def encode(self, text: str) -> TokenIds:
        """Text as it stands, with what the tokenizer puts around every text (a begin token, where it has one)."""
        return tuple(self._tokenizer.encode(text).ids)

    def encode_prompt(self, prompt: Prompt, tools: Sequence[Tool] = ()) -> TokenIds:
        """Token ids of any kind of prompt. Raises InvalidRequest where the chat template refuses it."""
        match prompt:
            case TextPrompt(text):
                return self.encode(text)
            case ChatPrompt(messages):
                return self.encode_rendered(self.render(messages, tools))
            case TokenPrompt(token_ids):
                return token_ids

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Tool] = (),
        *,
        max_bytes: int | None = None,
        reason: str = "",
    ) -> str:
        """A chat as the model reads it, up to where the assistant answers. Raises InvalidRequest where that fails, or
        is over `max_bytes`, for the `reason` given.
        """
        return self._template().render(messages, tools, max_bytes=max_bytes, reason=reason)

    def encode_rendered(self, rendered: str, *, after: int | None = None) -> TokenIds:
        """Ids of a rendered chat, or of what follows token `after` in one. The template has printed special tokens."""
        # Tokenizers treat the beginning of a text apart, and some special tokens swallow the blank that follows them.
        if after is not None and after in self.special_ids:
            ids = self._tokenizer.encode(self.token(after) + rendered, add_special_tokens=False).ids
            if ids[:1] == [after]:
                return tuple(ids[1:])
        return tuple(self._tokenizer.encode(rendered, add_special_tokens=False).ids)

    def calling(self, use: ToolUse) -> Calling:
        """What becomes of calls in the answer. Raises InvalidRequest where the model knows no tools."""
        special_ids = {self.token(token_id): token_id for token_id in self.special_ids}
        return Calling(self._template().call_form(), use, special_ids)

    def _template(self) -> ChatTemplate:
        if self._chat_template is None:
            raise InvalidRequest("chat", "this model has no chat template; send the prompt as text")
        return self._chat_template

    def decode(self, token_ids: list[int]) -> str:
        """Text of the ids; special tokens print nothing."""
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty for an id without one."""
        return self._tokenizer.id_to_token(token_id) or ""

    def _token_bytes(self, token_id: int) -> bytes:
        """`token_bytes`: what the token adds to a text; special tokens, which print nothing, as they are spelled."""
        spelling = self.token(token_id)
        return spelling.encode() if token_id in self.special_ids else self._spell(spelling)


def read_tokenizer(folder: Path) -> Any:
    """The `tokenizers.Tokenizer` of a model's folder. Raises ConfigurationError where there is none to be read."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigurationError(f"no tokenizer.json in {folder}; the gateway reads the tokenizer from it")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        refuse_lfs_pointer(folder / name)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001  # the library raises bare Exception for every fault of the file
        raise ConfigurationError(f"{file} cannot be read: {error}") from None
    # Files may carry the truncation and padding of their training.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
