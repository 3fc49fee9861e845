"""Reads the settings of one service from flags, environment and file, and refuses every name it does not know.

pydantic-settings ignores unknown environment variables silently, so names are checked here, with the nearest known
one in the message.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from saguaro.config.gateway import SETTINGS
from saguaro.config.services import ServiceSettings
from saguaro.errors import ConfigurationError

Settings = TypeVar("Settings", bound=ServiceSettings)

_CONFIG_VARIABLE = "SAGUARO_CONFIG"
_OTHER_VARIABLES = (_CONFIG_VARIABLE, "SAGUARO_CACHE", "SAGUARO_API_KEY")  # the last one of commands that ask


def load_settings(kind: type[Settings], argv: Sequence[str]) -> Settings:
    """`read_settings` for a main program: a fault is one sentence on stderr and exit code 2; `--help` exits too."""
    try:
        return read_settings(kind, argv)
    except ConfigurationError as error:
        sys.stderr.write(f"saguaro {kind.role}: {error}\n")
        raise SystemExit(2) from None


def read_settings(kind: type[Settings], argv: Sequence[str]) -> Settings:
    """Merge all sources. Raises ConfigurationError that names the setting, its source and what would work."""
    flags = _read_flags(kind, argv)
    refuse_unknown_variables()
    config = flags.pop("config", None) or os.environ.get(_CONFIG_VARIABLE)
    from_file = _read_file(Path(config), kind.role) if config else {}
    from_environment = EnvSettingsSource(kind)()
    try:
        return kind(**(from_file | from_environment | flags))
    except ValidationError as error:
        sentences = [_sentence(kind, item, flags, from_environment) for item in error.errors()]
        raise ConfigurationError("; ".join(sentences)) from None


def flag_name(field: str) -> str:
    """`kv_tokens` as `--kv-tokens`."""
    return "--" + field.replace("_", "-")


def environment_name(kind: type[ServiceSettings], field: str) -> str:
    """`kv_tokens` of the verifier as `SAGUARO_VERIFIER_KV_TOKENS`."""
    return f"{kind.model_config['env_prefix']}{field.upper()}"


def _read_flags(kind: type[ServiceSettings], argv: Sequence[str]) -> dict[str, Any]:
    parser = _Parser(
        prog=f"saguaro {kind.role}",
        description=kind.__doc__,
        epilog="Flags win over the environment, over the file, over the defaults.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help=f"TOML file with a table [{kind.role}]\n  ${_CONFIG_VARIABLE}")
    for name, field in kind.model_fields.items():
        parser.add_argument(flag_name(name), dest=name, metavar=_metavar(field), help=_help(kind, name, field))
    values, unknown = parser.parse_known_args(list(argv))
    if unknown:
        known = ["--config", "--help", *map(flag_name, kind.model_fields)]
        raise ConfigurationError(f"unknown flag {unknown[0]}{_nearest(unknown[0].partition('=')[0], known)}")
    return vars(values)


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def error(self, message: str) -> Any:
        raise ConfigurationError(message)


def _metavar(field: FieldInfo) -> str:
    words = {int: "N", float: "X", str: "TEXT"}
    arguments = getattr(field.annotation, "__args__", ())
    if arguments and all(isinstance(item, str) for item in arguments):
        return "|".join(arguments)
    kinds = [item for item in (arguments or (field.annotation,)) if item is not type(None)]
    return words.get(kinds[0], "TEXT")  # type: ignore[arg-type]  # unknown kinds fall to TEXT


def _help(kind: type[ServiceSettings], name: str, field: FieldInfo) -> str:
    # Where None is the default, the description says what it means.
    default = "" if field.default is None else f"default: {field.default or repr(field.default)}; "
    # argparse formats help texts with %.
    return f"{field.description}\n  {default}${environment_name(kind, name)}".replace("%", "%%")


def refuse_unknown_variables() -> None:
    """Raises ConfigurationError for a variable of the environment that begins as ours do and is none of them."""
    known = [environment_name(kind, field) for kind in SETTINGS for field in kind.model_fields]
    known.extend(_OTHER_VARIABLES)
    for name in sorted(os.environ):
        if name.upper().startswith("SAGUARO_") and name.upper() not in known:
            raise ConfigurationError(f"unknown environment variable {name}{_nearest(name.upper(), known)}")


def _read_file(path: Path, role: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.expanduser().read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the settings file {path} is not TOML: {error}") from None
    fields = {kind.role: list(kind.model_fields) for kind in SETTINGS}
    for table, values in tables.items():
        if table not in fields or not isinstance(values, dict):
            raise ConfigurationError(f"unknown table [{table}] in {path}{_nearest(table, fields)}")
        for name in values:
            if name not in fields[table]:
                raise ConfigurationError(
                    f"unknown setting {name} in [{table}] of {path}{_nearest(name, fields[table])}"
                )
    return dict(tables.get(role, {}))


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    matches = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else f"; known are {', '.join(known)}"


def _sentence(kind: type[ServiceSettings], item: Any, flags: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    name, *path = map(str, item["loc"]) if item["loc"] else ("settings",)
    source = flag_name(name) if name in flags else environment_name(kind, name) if name in environment else name
    # Of a field that may be one of several types pydantic says which it tried.
    source = ".".join((source, *filter(str.isidentifier, path)))
    if item["type"] == "extra_forbidden":
        return f"unknown setting {source}{_nearest(str(item['loc'][-1]), _names_beside(kind, item['loc']))}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{source} is {item['input']!r}: {message[:1].lower()}{message[1:]}"


def _names_beside(kind: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The names that there are where the last one of `path` is none."""
    for name in path[:-1]:
        annotation = kind.model_fields[str(name)].annotation
        nested = [item for item in (annotation, *get_args(annotation)) if isinstance(item, type)]
        kind = next(item for item in nested if issubclass(item, BaseModel))
    return list(kind.model_fields)
