"""Token ids to text while they come: whole characters only, and never a character that a later token could change.

The deltas, concatenated with the flush, equal the decode of all ids. Each id is decoded a bounded number of times, so
the work grows with the answer's length and no faster, whatever the ids are.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Protocol

_Utf8 = codecs.getincrementaldecoder("utf-8")
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Decoder(Protocol):
    """The part of a model's tokenizer that detokenizing needs."""

    special_ids: frozenset[int]

    def decode(self, token_ids: list[int]) -> str:
        """Text of the ids; special tokens print nothing."""

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text."""


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
        # Knows whether the bytes so far end inside of a character. Bytes that cannot become one hold nothing back.
        self._utf8 = _Utf8("replace")
        self._try_from = 0  # ids that must have come before a piece is decoded again that could not be given out

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that is settled now; empty while a character is incomplete."""
        # Special tokens print nothing and part nothing: bytes on both sides of one can form a character.
        new = [token_id for token_id in token_ids if token_id not in self._decoder.special_ids]
        end = self._settled_end(new)
        self._ids += new
        return "" if end <= self._read or end < self._try_from else self._give(end)

    def flush(self) -> str:
        """The rest, at the end of the answer: incomplete characters print as the decoder prints them."""
        whole, emitted = self._decoder.decode(self._ids), "".join(self._emitted)
        # A decoder of an unknown kind may rewrite what is out already; nothing that follows could mend that.
        return whole[len(emitted) :] if whole.startswith(emitted) else ""

    def _settled_end(self, new: list[int]) -> int:
        """Number of the ids, the new ones included, whose text no later id can change; 0 where it is as before."""
        settled = 0
        for number, token_id in enumerate(new, start=len(self._ids) + 1):
            self._utf8.decode(self._decoder.token_bytes(token_id))
            # A byte-fallback decoder judges a run of byte tokens as one: a bad byte later spoils the good ones before.
            if not self._utf8.getstate()[0] and not _BYTE_TOKEN.fullmatch(self._decoder.token(token_id)):
                settled = number
        return settled

    def _give(self, end: int) -> str:
        text = self._decoder.decode(self._ids[self._context : end])
        if not text.startswith(self._context_text):
            # A decoder that rewrites its last piece. Twice as many ids later, so that all tries together stay linear.
            self._try_from = end + (end - self._context)
            return ""
        piece = text[len(self._context_text) :]
        self._context, self._read = self._read, end
        self._context_text = self._decoder.decode(self._ids[self._context : end])
        self._emitted.append(piece)
        return piece
