"""Token ids to text while they come: whole characters only, and never a character that a later token could change.

The deltas, concatenated with the flush, equal the decode of all ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

# What a decoder prints for bytes that are not, or not yet, UTF-8.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Decoder(Protocol):
    """The part of a model's tokenizer that detokenizing needs."""

    special_ids: frozenset[int]

    def decode(self, token_ids: list[int]) -> str:
        """Text of the ids; special tokens print nothing."""

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""


class IncrementalDetokenizer:
    """The text of one answer.

    Ids from `_context` to `_read` are the last piece that was given out. They are decoded again in front of new ids,
    since some decoders treat the first token apart (a leading space is dropped, a later one is not).
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ids: list[int] = []
        self._context = 0
        self._read = 0
        self._context_text = ""
        self._emitted: list[str] = []

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that is settled now; empty while a character is incomplete."""
        seen = len(self._ids)
        # Special tokens print nothing and part nothing: bytes on both sides of one can form a character.
        self._ids.extend(token_id for token_id in token_ids if token_id not in self._decoder.special_ids)
        # The longest settled prefix; what was unsettled before the new ids cannot be settled without them.
        for end in range(len(self._ids), seen, -1):
            text = self._settled(end)
            if text is not None:
                return self._emit(text, end)
        return ""

    def flush(self) -> str:
        """The rest, at the end of the answer: incomplete characters print as the decoder prints them."""
        whole, emitted = self._decoder.decode(self._ids), "".join(self._emitted)
        # A decoder of an unknown kind may rewrite what is out already; nothing that follows could mend that.
        return whole[len(emitted) :] if whole.startswith(emitted) else ""

    def _settled(self, end: int) -> str | None:
        """Text of the ids up to `end` after what was given out, or None while later ids could change it."""
        # A byte-fallback decoder judges a run of byte tokens as one: a bad byte later spoils the good ones before it.
        if _BYTE_TOKEN.fullmatch(self._decoder.token(self._ids[end - 1])):
            return None
        text = self._decoder.decode(self._ids[self._context : end])
        if text.endswith(_REPLACEMENT) or not text.startswith(self._context_text):
            return None
        return text[len(self._context_text) :]

    def _emit(self, text: str, end: int) -> str:
        self._context, self._read = self._read, end
        self._context_text = self._decoder.decode(self._ids[self._context : self._read])
        self._emitted.append(text)
        return text
