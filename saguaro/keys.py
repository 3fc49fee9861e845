"""API keys: the file that a gateway reads and `saguaro keys` writes. It holds hashes, never keys.

A key is 256 random bits, so SHA-256 is the right hash: there is nothing to guess for which a slow one would raise the
price (scrypt and its like protect passwords, which people choose), and a gateway hashes at every call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from saguaro.errors import ConfigurationError

_PREFIX = "sgr_"  # lets scanners of repositories and logs recognise a key that leaked
_Count = Annotated[int, Field(ge=1, le=1 << 40)]


class KeyLimits(BaseModel):
    """How much a key may use; None sets no limit. `tokens_per_minute` counts those of prompts and answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None
    concurrent_answers: _Count | None = None


class KeyRecord(KeyLimits):
    """What is known of one key: whose it is, its hash, what it may. `models`: those it may ask for, None all.

    `may_set_policy`: it may change the deployment's policy over gRPC.
    """

    name: Annotated[str, Field(min_length=1, max_length=128)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    models: tuple[str, ...] | None = None
    may_set_policy: bool = False
    expires_at: AwareDatetime | None = None


class _KeyFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[KeyRecord, ...]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for name, count in Counter(record.name for record in self.keys).items():
            if count > 1:
                raise ValueError(f'the name "{name}" stands for two keys; each has a name of its own')
        return self


def new_key() -> str:
    """A key as its holder sends it. It can be told from no record: show it once."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """What a record holds of the key."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """Raises ConfigurationError where there is no such file, or it is not one of keys."""
    try:
        return _KeyFile.model_validate_json(path.read_bytes()).keys
    except OSError as error:
        raise ConfigurationError(f"cannot read the keys file {path}: {error.strerror}") from None
    except ValidationError as error:
        # Without the input: it may hold a key that someone has pasted in place of its hash.
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the file"
        message = str(fault["msg"]).removeprefix("Value error, ")
        raise ConfigurationError(f"the keys file {path} is broken: {where}: {message}") from None


def write_keys(path: Path, records: Sequence[KeyRecord]) -> None:
    """Replace the file as a whole, readable by its owner alone. Raises ConfigurationError where that is refused."""
    document = {"keys": [record.model_dump(mode="json", exclude_none=True) for record in records]}
    try:
        # Beside it, so that the rename is atomic: a gateway never reads half a file.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(document, file, indent=2)
                file.write("\n")
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise ConfigurationError(f"cannot write the keys file {path}: {error.strerror}") from None
