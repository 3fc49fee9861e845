"""What one token adds to a text, in bytes: a token may be a part of a character, which no string can show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_speller(tokenizer: Any) -> Callable[[str], bytes]:
    """From a token as the vocabulary of `tokenizer` (a `tokenizers.Tokenizer`) spells it to its bytes.

    Byte-level vocabularies spell each byte as a character of its own; those with byte fallback spell a blank "▁" and
    lone bytes "<0xE2>". Tokens that the vocabulary does not spell so, as special ones, stand for their own letters.
    """
    decoder = json.loads(tokenizer.to_str())["decoder"]
    return _of_byte_level if '"ByteLevel"' in json.dumps(decoder) else _of_byte_fallback


def _of_byte_level(spelling: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in spelling)
    except KeyError:
        return spelling.encode()


def _of_byte_fallback(spelling: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(spelling)
    return bytes([int(byte[1], 16)]) if byte else spelling.replace("▁", " ").encode()


def _byte_table() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for the characters from 256 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_table()
