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
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.tools.documents import CutArguments, message_document, tool_document
from gateway.tools.forms import CallForm, form_of
from saguaro.answers import ChatMessage
from saguaro.errors import ConfigurationError, InvalidRequest
from saguaro.tools import Tool

_FIELD, _TOOLS = "chat.messages", "chat.tools"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTemplate:
    """A model's template, the one that it has for tools, and the named special tokens that they may print."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], tool_source: str | None = None) -> None:
        """`special_tokens`: "bos_token" and the like, to their text. `tool_source`: the template for chats with tools,
        where that is another one. Raises ConfigurationError for a bad template.
        """
        environment = _environment()
        tool_source = source if tool_source is None else tool_source
        try:
            self._template = environment.from_string(source)
            self._tool_template = environment.from_string(tool_source)
            knows_tools = "tools" in find_undeclared_variables(environment.parse(tool_source))
        except jinja2.TemplateError as error:
            raise ConfigurationError(f"the model's chat template does not compile: {error}") from None
        self._special_tokens = dict(special_tokens)
        self._knows_tools = knows_tools
        self._call_form = form_of(tool_source)

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """From chat_template.jinja or tokenizer_config.json; None where the model has no template."""
        config = _read_json(folder / "tokenizer_config.json")
        file = folder / "chat_template.jinja"
        source = file.read_text() if file.is_file() else _named("default", config.get("chat_template"))
        if source is None:
            return None
        tool_source = None if file.is_file() else _named("tool_use", config.get("chat_template"))
        names = _read_json(folder / "special_tokens_map.json") | config
        tokens = {name: text for name in _NAMED_TOKENS if (text := _token_text(names.get(name))) is not None}
        return cls(source, tokens, tool_source)

    def call_form(self) -> CallForm:
        """How the model writes calls. Raises InvalidRequest where it was not taught to, or in a way unknown here."""
        if not self._knows_tools:
            raise InvalidRequest(_TOOLS, "this model's chat template knows no tools; leave them out")
        if self._call_form is None:
            raise InvalidRequest(_TOOLS, "this model's chat template shows calls in a form that cannot be read here")
        return self._call_form

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> str:
        """The prompt's text, up to where the assistant answers. Raises InvalidRequest where the template refuses."""
        if not messages:
            raise InvalidRequest(_FIELD, "the chat has no messages; give at least one")
        template = self._tool_template if tools else self._template
        try:
            return template.render(
                messages=[message_document(message) for message in messages],
                tools=[tool_document(tool) for tool in tools] or None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, RecursionError) as error:
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
    if isinstance(value, CutArguments):
        return value.text
    # jinja's own filter escapes HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _named(name: str, configured: object) -> str | None:
    """tokenizer_config.json holds one template, the default one, or several by name."""
    if isinstance(configured, list):
        named = {item["name"]: item["template"] for item in configured}
        return named.get(name)
    return configured if isinstance(configured, str) and name == "default" else None


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
