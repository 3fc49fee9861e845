"""A running hash of a sequence's committed tokens, by which verifier and speculator notice that they differ."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

EMPTY = 0  # of no tokens


def extended_hash(known: int, token_ids: Sequence[int]) -> int:
    """Hash of the tokens that `known` is the hash of, with these after them.

    32 bits: CRC-32 over the ids as little-endian uint32, so that it can be carried on and is the same in any language.
    """
    return zlib.crc32(struct.pack(f"<{len(token_ids)}I", *token_ids), known)
