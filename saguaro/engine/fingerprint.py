"""What a tokenizer is, as two numbers that verifier and speculator compare. Loads no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from saguaro.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """Two tokenizers with equal identities give the same meaning to every token id."""

    fingerprint: str  # SHA-256, hexadecimal, over the id -> token table
    usable_vocabulary_tokens: int  # largest id + 1; a model's embeddings may be padded beyond it


def tokenizer_identity(folder: Path) -> TokenizerIdentity:
    """Identity of the tokenizer in `folder`, from its tokenizer.json.

    The table that is hashed holds every id, special and added tokens included: the vocabulary size alone would call
    different tokenizers equal. Raises ConfigurationError if the file is missing or unreadable.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigurationError(f"no tokenizer at {folder}: expected tokenizer.json there")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ConfigurationError(f"{file} is not a tokenizer file: {error}") from error
    table = sorted((index, token) for token, index in tokenizer.get_vocab(with_added_tokens=True).items())
    digest = hashlib.sha256(json.dumps(table, separators=(",", ":")).encode())
    return TokenizerIdentity(digest.hexdigest(), table[-1][0] + 1)


def tokenizer_fingerprint(folder: Path) -> str:
    """SHA-256 over the id -> token table of the tokenizer in `folder`, see `tokenizer_identity`."""
    return tokenizer_identity(folder).fingerprint
