"""Renders a model's chat template as transformers does, without transformers.

Templates come with models, from strangers: they run in jinja's immutable sandbox.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from saguaro.answers import ChatMessage
from saguaro.errors import ConfigurationError, InvalidRequest

_FIELD = "chat.messages"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTemplate:
    """One compiled template and the named special tokens that it may print."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens`: "bos_token" and the like, to their text. Raises ConfigurationError for a bad template."""
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigurationError(f"the model's chat template does not compile: {error}") from None
        self._special_tokens = dict(special_tokens)

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """From chat_template.jinja or tokenizer_config.json; None where the model has no template."""
        config = _read_json(folder / "tokenizer_config.json")
        file = folder / "chat_template.jinja"
        source = file.read_text() if file.is_file() else _default(config.get("chat_template"))
        if source is None:
            return None
        names = _read_json(folder / "special_tokens_map.json") | config
        tokens = {name: text for name in _NAMED_TOKENS if (text := _token_text(names.get(name))) is not None}
        return cls(source, tokens)

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt's text, up to where the assistant answers. Raises InvalidRequest where the template refuses."""
        if not messages:
            raise InvalidRequest(_FIELD, "the chat has no messages; give at least one")
        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(messages=plain, add_generation_prompt=True, **self._special_tokens)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise InvalidRequest(_FIELD, f"the model's chat template refuses these messages: {error}") from None


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is printed as it stands."""

    tags = {"generation"}  # noqa: RUF012  # jinja declares it so

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja's own filter escapes HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _default(configured: object) -> str | None:
    """tokenizer_config.json holds one template, or several by name."""
    if isinstance(configured, list):
        named = {item["name"]: item["template"] for item in configured}
        return named.get("default")
    return configured if isinstance(configured, str) else None


def _token_text(configured: object) -> str | None:
    """Special tokens are written as text, or as an object with the text and how it is matched."""
    if isinstance(configured, dict):
        configured = configured.get("content")
    return configured if isinstance(configured, str) else None


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text()))
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from None
