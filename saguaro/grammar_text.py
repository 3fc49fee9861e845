"""What of a grammar's text is told without compiling it: the JSON schemas in it, and escapes of characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_LARK = re.compile(r"^[ \t]*(?:%llguidance\b|start[ \t]*:(?!:=))", re.MULTILINE)
# Comments, strings and expressions, in which "%json" is no directive; what is not closed goes on to the text's end.
_TOKEN = re.compile(
    r'//[^\n]*|#[^\n]*|"(?:\\(?:.|\Z)|[^"\\])*(?:"|\Z)|/(?:\\(?:.|\Z)|[^/\\])+(?:/|\Z)|(?P<json>%json\s*(?=\{))',
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|U(?P<long>[0-9a-fA-F]{8})|u(?P<short>[0-9a-fA-F]{4})|x(?P<byte>[0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_LAST_ASCII, _LAST_CHARACTER, _SURROGATES = 0x7F, 0x10FFFF, range(0xD800, 0xE000)


def is_lark(grammar: str) -> bool:
    """Whether a grammar is in Lark's syntax, which begins at "start:"; else it is in GBNF, where ::= makes a rule."""
    return _LARK.search(grammar) is not None


def embedded_schemas(grammar: str) -> Iterator[slice]:
    """Where the JSON objects of `%json {...}` stand in a grammar, in order, up to the first that is broken.

    Only Lark's syntax has such.
    """
    if not is_lark(grammar):
        return
    decoder, place = json.JSONDecoder(), 0
    while (token := _TOKEN.search(grammar, place)) is not None:
        place = token.end()
        if token["json"] is None:
            continue
        try:
            _, end = decoder.raw_decode(grammar, place)
        except (ValueError, RecursionError):
            return  # the compiler says what is wrong with it
        yield slice(place, end)
        place = end


def with_plain_escapes(gbnf: str) -> str:
    """A grammar in GBNF with one escape of characters by number, `\\xHH` up to 7F; the others stand as they are.

    GBNF has `\\xHH`, `\\uHHHH` and `\\UHHHHHHHH`; pairs of `\\u` are taken as JSON has them. Raises ValueError for a
    number that is no character.
    """
    return _ESCAPE.sub(_plain, gbnf)


def _plain(escape: re.Match[str]) -> str:
    digits = escape["long"] or escape["short"] or escape["byte"]
    if escape["high"]:
        return bytes.fromhex(escape["high"] + escape["low"]).decode("utf-16-be")
    if digits is None:
        return escape[0]
    number = int(digits, 16)
    if number > _LAST_CHARACTER or number in _SURROGATES:
        raise ValueError(f"{escape[0]} is not a character of Unicode")
    return chr(number) if number > _LAST_ASCII else f"\\x{number:02x}"
