"""Tokens as bytes: joined, they are the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text import TextModel
from tests.unit.gateway.text_folder import byte_fallback_tokenizer, byte_level_tokenizer

BYTE_LEVEL = TextModel(byte_level_tokenizer(), None)
BYTE_FALLBACK = TextModel(byte_fallback_tokenizer(), None)


@given(st.text())
def test_bytes_of_a_byte_level_vocabulary_join_to_any_text(text: str) -> None:
    assert b"".join(map(BYTE_LEVEL.token_bytes, BYTE_LEVEL.encode(text))) == text.encode()


@pytest.mark.parametrize("text", ["▁the▁cactuss", "沙é", "▁🌵", "ಠ_ಠ"])
def test_bytes_of_a_vocabulary_with_byte_fallback_join_to_the_text(text: str) -> None:
    assert b"".join(map(BYTE_FALLBACK.token_bytes, BYTE_FALLBACK.encode(text))) == text.replace("▁", " ").encode()


def test_a_special_token_is_spelled_as_the_vocabulary_has_it() -> None:
    assert BYTE_LEVEL.token_bytes(1) == b"<|im_end|>"
