"""Which tokens end an answer: every file of a model may name some, and each counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from saguaro.engine.families import text_config
from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer


def end_token_ids(config: Any, folder: Path, tokenizer_folder: Path, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Those that generation_config.json and config.json in `folder` and the tokenizer's files name; perhaps none.

    Where no file names one, those that the family's config has by default; beside others they do not count, since the
    same id may be a word of this vocabulary. The tokenizer's files, in `tokenizer_folder`, name a token by its text:
    one that the tokenizer does not know, or the model has no embedding for, never comes and is left out.
    """
    written = _read_json(folder / "config.json")
    text_part = written.get("text_config")
    parts = [_read_json(folder / "generation_config.json"), written, text_part if isinstance(text_part, dict) else {}]
    ids = [token_id for part in parts for token_id in _ids(part.get("eos_token_id"))]
    text = _eos_token(tokenizer_folder)
    named = None if text is None else tokenizer.token_to_id(text)
    if named is not None and named < text_config(config).vocab_size:
        ids.append(named)
    return tuple(dict.fromkeys(ids or _ids(getattr(text_config(config), "eos_token_id", None))))


def _ids(configured: Any) -> Iterable[int]:
    listed = configured if isinstance(configured, list | tuple) else [configured]
    # A negative id means that there is none.
    return (item for item in listed if isinstance(item, int) and not isinstance(item, bool) and item >= 0)


def _eos_token(folder: Path) -> str | None:
    """Files write a token as text, or as an object with the text and how it is matched."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _read_json(folder / name).get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            return text
    return None


def _read_json(file: Path) -> dict[str, Any]:
    """Empty where there is no such file: all of these may be left out. Raises ConfigurationError for a broken one."""
    if not file.is_file():
        return {}
    refuse_lfs_pointer(file)
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{file} is not a JSON object: {error}") from error
