"""The texts behind `--json-schema` and `--grammar`."""

from __future__ import annotations

from pathlib import Path

import typer


def schema_of(value: str | None) -> str | None:
    """The flag's value itself where that is a schema, else what the file of that name holds."""
    if value is None or value.lstrip()[:1] in ("{", "[") or value.strip() in ("", "true", "false"):
        return value
    return _read("--json-schema", value)


def grammar_of(value: str | None) -> str | None:
    """What the file of that name holds."""
    return None if value is None else _read("--grammar", value)


def _read(flag: str, name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f'{flag} is "{name}", which is no file that can be read: {error}') from None
