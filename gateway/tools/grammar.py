"""Where a call must come, or must match its schema, the grammar of what the model may write, in Lark syntax.

The tokens of markers that the vocabulary holds as special stand in it by their ids: their letters would not do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.tools.forms import CallForm
from saguaro.tools import Tool, ToolUse
from saguaro.types import Constraint, ConstraintKind

# Small models that are bound to call go on calling.
MAX_DEMANDED_CALLS = 8

# The verifier's own rules for schemas, said in the schema since they are not the rules of a grammar's.
_KEPT_TO_THE_LETTER = {"whitespace_pattern": r"[ \t\r\n]{1,32}", "lenient": False, "coerce_one_of": False}
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_PROSE = ("title", "description", "examples", "default", "$comment")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = ("items", "additionalProperties", "contains", "propertyNames", "prefixItems", "anyOf", "oneOf", "allOf")


def calls_constraint(form: CallForm, use: ToolUse, special_ids: Mapping[str, int]) -> Constraint | None:
    """What the answer must match; None where it is free to be anything. `special_ids`: of special tokens by name."""
    if use.must_call:
        tools = [tool for tool in use.tools if use.only in ("", tool.name)]
        most = 1 if use.only or use.single or not form.several else MAX_DEMANDED_CALLS
        start = f'start: call ("\\n" call){{0,{most - 1}}}' if most > 1 else "start: call"
        lines = [start, *_call_rules(form, tools, special_ids)]
    elif use.single or any(tool.strict for tool in use.tools):
        times = "?" if use.single or not form.several else "*"
        lines = [*_free_rules(form, times, special_ids), *_call_rules(form, use.tools, special_ids)]
    else:
        return None
    return Constraint(ConstraintKind.GRAMMAR, "\n".join(lines) + "\n")


def _call_rules(form: CallForm, tools: Sequence[Tool], special_ids: Mapping[str, int]) -> Iterator[str]:
    opening = _marker(form.opening, special_ids) + _literal(form.padding)
    closing = _literal(form.padding) + _marker(form.closing, special_ids)
    yield f"call: {opening} body {closing}"
    yield from _bodies(form, tools)


def _free_rules(form: CallForm, times: str, special_ids: Mapping[str, int]) -> Iterator[str]:
    """Text in which calls, where they come, are well formed."""
    if not form.opening:
        yield r"start: call | TEXT | "
        yield r"TEXT: /[^{ \t\r\n](.|\n)*/"
    elif form.opening in special_ids:
        yield f"start: (TEXT? call){times} TEXT?"
        yield r"TEXT: /(.|\n)+/"
    else:
        # The text up to a marker ends with it, so that no call goes by as text.
        opening, closing = form.opening.replace("/", r"\/"), form.padding + form.closing
        yield f"start: (text_up_to_call {_literal(form.padding)} body {_literal(closing)}){times} rest"
        yield rf"text_up_to_call[lazy]: /(.|\n)*{opening}/"
        yield "rest: REST"
        yield rf"REST: /(.|\n)*/ & ~/(.|\n)*{opening}(.|\n)*/"


def _bodies(form: CallForm, tools: Sequence[Tool]) -> Iterator[str]:
    yield "body: " + " | ".join(f"tool_{index}" for index in range(len(tools)))
    for index, tool in enumerate(tools):
        head = f'{{"name": "{tool.name}", "{form.arguments_key}": '
        yield f'tool_{index}: {_literal(head)} arguments_{index} "}}"'
        yield f"arguments_{index}: %json {_schema(tool)}"


def _schema(tool: Tool) -> str:
    schema = json.loads(tool.parameters) if tool.parameters else _NOTHING
    # Nobody but the model reads prose, and a grammar has less room than a prompt.
    whole = {"type": "object"} | _without_prose(schema) | {"x-guidance": _KEPT_TO_THE_LETTER}
    return json.dumps(whole, ensure_ascii=False)


def _without_prose(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _value_without_prose(key, value) for key, value in schema.items() if key not in _PROSE}


def _value_without_prose(key: str, value: Any) -> Any:
    if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
        return {name: _without_prose(schema) for name, schema in value.items()}
    return _without_prose(value) if key in _SCHEMAS else value


def _marker(text: str, special_ids: Mapping[str, int]) -> str:
    return f"<[{special_ids[text]}]> " if text in special_ids else _literal(text)


def _literal(text: str) -> str:
    return json.dumps(text) + " " if text else ""
