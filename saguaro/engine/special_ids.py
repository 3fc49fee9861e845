"""The ids that a model's files name for special purposes: they must be rows of its embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer

_FILES = ("generation_config.json", "config.json")
_NAMES = ("eos_token_id", "bos_token_id", "pad_token_id")


def check_special_ids(folder: Path, num_rows: int) -> None:
    """Raises ConfigurationError, naming file and value, for an id that is none of the model's `num_rows` embeddings.

    A negative id means that there is none, as in transformers.
    """
    for file in (folder / name for name in _FILES):
        for name, value in _named_ids(file):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigurationError(f"{file}: {name} is {value!r}; it must be a token id, a list of them, or null")
            if value >= num_rows:
                raise ConfigurationError(
                    f"{file}: {name} is {value}, but the model has {num_rows} embeddings, so ids end at "
                    f"{num_rows - 1}; correct the file, or remove {name} from it"
                )


def _named_ids(file: Path) -> Iterator[tuple[str, Any]]:
    """Name and value of each special id in the file, and in the text model's part of it."""
    if not file.is_file():
        return
    refuse_lfs_pointer(file)
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from error
    parts = [config, config.get("text_config")] if isinstance(config, dict) else []
    for part in parts:
        named = part if isinstance(part, dict) else {}
        for name in _NAMES:
            value = named.get(name)
            for item in value if isinstance(value, list) else [value]:
                if item is not None:
                    yield name, item
