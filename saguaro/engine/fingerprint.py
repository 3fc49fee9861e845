"""What a tokenizer and a model are, as numbers that services compare. Loads no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from saguaro.engine.weight_files import weight_files
from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer

_NOT_THE_MODEL = ("_name_or_path", "transformers_version")  # of config.json
_SAMPLE_BYTES = 256
_LARGEST_HEADER_BYTES = 100_000_000  # the format's own bound


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """Two tokenizers with equal identities give the same meaning to every token id."""

    fingerprint: str  # SHA-256, hexadecimal, over the id -> token table
    usable_vocabulary_tokens: int  # largest id + 1; a model's embeddings may be padded beyond it


def tokenizer_identity(folder: Path) -> TokenizerIdentity:
    """Identity of the tokenizer in `folder`. Raises ConfigurationError, see `read_tokenizer`."""
    return identity_of(read_tokenizer(folder))


def read_tokenizer(folder: Path) -> Tokenizer:
    """From tokenizer.json in `folder`. Raises ConfigurationError if the file is missing or unreadable."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigurationError(f"no tokenizer at {folder}: expected tokenizer.json there")
    refuse_lfs_pointer(file)
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ConfigurationError(f"{file} is not a tokenizer file: {error}") from error


def identity_of(tokenizer: Tokenizer) -> TokenizerIdentity:
    """The table that is hashed holds every id, special and added tokens included: the vocabulary size alone would call
    different tokenizers equal.
    """
    table = sorted((index, token) for token, index in tokenizer.get_vocab(with_added_tokens=True).items())
    digest = hashlib.sha256(json.dumps(table, separators=(",", ":")).encode())
    return TokenizerIdentity(digest.hexdigest(), table[-1][0] + 1)


def tokenizer_fingerprint(folder: Path) -> str:
    """SHA-256 over the id -> token table of the tokenizer in `folder`, see `tokenizer_identity`."""
    return tokenizer_identity(folder).fingerprint


def model_fingerprint(folder: Path, *variant: str) -> str:
    """SHA-256 over the model in `folder`: its config, and of every tensor name, type, shape and two samples of bytes.

    `variant`: what else changes the model's numbers, as a lossy kind of layers. Sampled, so that a fingerprint costs
    milliseconds whatever the model's size: two checkpoints of one training differ in every tensor, and are told apart.
    Raises ConfigurationError for a file that is not safetensors.
    """
    config = json.loads((folder / "config.json").read_text())
    for name in _NOT_THE_MODEL:
        config.pop(name, None)
    digest = hashlib.sha256(json.dumps([config, variant], sort_keys=True).encode())
    tensors = [tensor for file in weight_files(folder) for tensor in _tensors(file)]
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):  # whichever files they lie in
        digest.update(json.dumps([tensor.name, tensor.dtype, tensor.shape]).encode())
        for sample in tensor.samples:
            digest.update(sample)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: str
    shape: list[int]
    samples: tuple[bytes, ...]  # from its beginning and its middle


def _tensors(file: Path) -> Iterator[_Tensor]:
    try:
        with file.open("rb") as source:
            header_bytes = int.from_bytes(source.read(8), "little")
            if header_bytes > _LARGEST_HEADER_BYTES:
                raise ValueError(f"its header would be {header_bytes} bytes long")
            tensors = json.loads(source.read(header_bytes))
            tensors.pop("__metadata__", None)
            for name, tensor in tensors.items():
                samples = []
                start, end = tensor["data_offsets"]
                for offset in (start, (start + end) // 2):
                    source.seek(8 + header_bytes + offset)
                    samples.append(source.read(min(_SAMPLE_BYTES, end - offset)))
                yield _Tensor(name, tensor["dtype"], tensor["shape"], tuple(samples))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{file} is not a safetensors file: {error}") from error
