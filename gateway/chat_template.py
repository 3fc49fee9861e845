"""Renders a model's chat template as transformers does, without transformers.

Templates come with models, from strangers: they run in jinja's immutable sandbox, and the gateway renders them in
processes that it can kill (`gateway.text_workers`), since nothing in the sandbox bounds their time.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.tools.documents import CutArguments, message_document, tool_document
from gateway.tools.forms import CallForm, form_of
from saguaro.answers import ChatMessage
from saguaro.errors import ConfigurationError, InvalidRequest
from saguaro.tools import Tool

_FIELD, _TOOLS = "chat.messages", "chat.tools"
_NOT_COMPILED = "the model's chat template does not compile: {}"
_PROBE = "The saguaro stands."
_MAX_ERROR_CHARACTERS = 500  # of what a template says, which may repeat a whole chat
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTemplate:
    """A model's template, the one that it has for tools, and the named special tokens that they may print."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], tool_source: str | None = None) -> None:
        """`special_tokens`: "bos_token" and the like, to their text. `tool_source`: the template for chats with tools,
        where that is another one. Raises ConfigurationError for a bad template.
        """
        tool_source = source if tool_source is None else tool_source
        self._environment = _environment()
        try:
            # Parsed alone: compiling works out constants, which may take any time and memory.
            self._environment.parse(source)
            parsed = self._environment.parse(tool_source)
        except jinja2.TemplateError as error:
            raise ConfigurationError(_NOT_COMPILED.format(error)) from None
        self._sources = source, tool_source
        self._special_tokens = dict(special_tokens)
        self._knows_tools = any(name.name == "tools" for name in parsed.find_all(jinja2.nodes.Name))
        self._call_form = form_of(tool_source)
        self._roles_with_parts: frozenset[str] | None = None  # as `probe` finds out

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

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Tool] = (),
        *,
        max_bytes: int | None = None,
        reason: str = "",
    ) -> str:
        """The prompt's text, up to where the assistant answers. Raises InvalidRequest where the template refuses, or
        writes more than `max_bytes`, for the `reason` given.
        """
        if not messages:
            raise InvalidRequest(_FIELD, "the chat has no messages; give at least one")
        if self._roles_with_parts is None:
            self._roles_with_parts = self._probed() or frozenset()
        try:
            return self._written(messages, tools, self._roles_with_parts, max_bytes)
        except _TooLong:
            raise InvalidRequest(
                _FIELD, f"the model's chat template makes over {max_bytes} bytes of these messages; {reason}"
            ) from None
        except MemoryError:
            raise  # how much there is, the worker knows
        except Exception as error:  # noqa: BLE001  # a template can fail in any way that Python can
            said = str(error)[:_MAX_ERROR_CHARACTERS]
            raise InvalidRequest(_FIELD, f"the model's chat template refuses these messages: {said}") from None

    def probe(self) -> None:
        """Compiles, and renders short chats. Raises ConfigurationError where nothing of a user's message is printed."""
        try:
            _ = self._templates
        except jinja2.TemplateError as error:
            raise ConfigurationError(_NOT_COMPILED.format(error)) from None
        self._roles_with_parts = self._probed()
        if self._roles_with_parts is None:
            raise ConfigurationError(
                "the model's chat template prints nothing of a user's message, neither of text nor of a list of parts; "
                "mend the template"
            )

    @cached_property
    def _templates(self) -> tuple[jinja2.Template, jinja2.Template]:
        """For chats without and with tools."""
        plain, tool_use = map(self._environment.from_string, self._sources)
        return plain, tool_use

    def _probed(self) -> frozenset[str] | None:
        """The roles whose content the template wants as OpenAI's list of parts; others', as text. None where it prints
        a user's message in neither form.

        Some templates go through the parts of a message and print nothing, without an error, of one that is text.
        """
        plain = ChatMessage("user", "?")
        wants_parts = self._wants_parts("user", [ChatMessage("user", _PROBE)], frozenset())
        if wants_parts is None:
            return None
        roles = frozenset({"user", "tool"} if wants_parts else ())
        for role, chat in (
            ("system", [ChatMessage("system", _PROBE), plain]),
            ("assistant", [plain, ChatMessage("assistant", _PROBE), plain]),
        ):
            if self._wants_parts(role, chat, roles):
                roles |= {role}
        return roles

    def _wants_parts(self, role: str, chat: Sequence[ChatMessage], others: frozenset[str]) -> bool | None:
        """Whether the content of `role` must be parts; None where the template prints it in no form, and says nothing.

        One that refuses the chat may want others before it, so it is given text.
        """
        prints_nothing = True
        for with_parts in (others - {role}, others | {role}):
            try:
                if _PROBE in self._written(chat, (), with_parts, None):
                    return role in with_parts
            except Exception:  # noqa: BLE001  # as in `render`
                prints_nothing = False
        return None if prints_nothing else False

    def _written(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], with_parts: frozenset[str], max_bytes: int | None
    ) -> str:
        pieces: list[str] = []
        num_characters = 0
        for piece in self._templates[bool(tools)].generate(
            messages=[_document(message, with_parts) for message in messages],
            tools=[tool_document(tool) for tool in tools] or None,
            add_generation_prompt=True,
            **self._special_tokens,
        ):
            num_characters += len(piece)
            if max_bytes is not None and num_characters > max_bytes:
                raise _TooLong
            pieces.append(piece)
        return "".join(pieces)


class _TooLong(Exception):
    """The template writes more than it may."""


def _document(message: ChatMessage, with_parts: frozenset[str]) -> dict[str, Any]:
    document = message_document(message)
    if message.role in with_parts:
        document["content"] = [{"type": "text", "text": message.content}]
    return document


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
