"""Where a call must come, or must match its schema, the grammar of what the model may write, in Lark syntax.

The tokens of markers that the vocabulary holds as special stand in it by their ids: their letters would not do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.tools.forms import CallForm
from saguaro.errors import InvalidRequest
from saguaro.json_schema import subschemas
from saguaro.tools import Tool, ToolUse
from saguaro.types import Constraint, ConstraintKind
from saguaro.validation import MAX_EMBEDDED_BYTES, MAX_EMBEDDED_SCHEMA_BYTES

# Small models that are bound to call go on calling.
MAX_DEMANDED_CALLS = 8

# The verifier's own rules for schemas, said in the schema since they are not the rules of a grammar's.
_KEPT_TO_THE_LETTER = {"whitespace_pattern": r"[ \t\r\n]{1,32}", "lenient": False, "coerce_one_of": False}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_PROSE = ("title", "description", "examples", "default", "$comment")
_RULE = "t"  # of a tool, before its number; short, since a grammar is bounded


def calls_constraint(form: CallForm, use: ToolUse, special_ids: Mapping[str, int]) -> Constraint | None:
    """What the answer must match; None where it is free to be anything. `special_ids`: of special tokens by name."""
    if use.must_call:
        tools = constrained_tools(use)
        most = 1 if use.only or use.single or not form.several else MAX_DEMANDED_CALLS
        start = f'start: call ("\\n" call){{0,{most - 1}}}' if most > 1 else "start: call"
        lines = [start, *_call_rules(form, tools, special_ids)]
    elif use.single or any(tool.strict for tool in use.tools):
        times = "?" if use.single or not form.several else "*"
        lines = [*_free_rules(form, times, special_ids), *_call_rules(form, constrained_tools(use), special_ids)]
    else:
        return None
    return Constraint(ConstraintKind.GRAMMAR, "\n".join(lines) + "\n")


def constrained_tools(use: ToolUse) -> tuple[Tool, ...]:
    """Those that a call in the answer may be of."""
    return tuple(tool for tool in use.tools if not use.must_call or use.only in ("", tool.name))


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
    yield "body: " + " | ".join(f"{_RULE}{index}" for index in range(len(tools)))
    for index, (tool, schema) in enumerate(zip(tools, _schemas(tools), strict=True)):
        head = f'{{"name": "{tool.name}", "{form.arguments_key}": '
        yield f'{_RULE}{index}: {_literal(head)}%json {schema} "}}"'


def tool_at(grammar: str, line: int, tools: Sequence[Tool]) -> Tool | None:
    """The tool whose rule is line number `line`, from 1, of a grammar of calls; None for a line that is of no tool."""
    lines = grammar.splitlines()
    rule = re.match(rf"{_RULE}(\d+): ", lines[line - 1]) if 1 <= line <= len(lines) else None
    return None if rule is None else tools[int(rule[1])]


def _schemas(tools: Sequence[Tool]) -> list[str]:
    """The schema of each tool's arguments. Raises InvalidRequest, with the tool's name, for more than can be served."""
    schemas = [_schema(tool) for tool in tools]
    sizes = [len(schema.encode()) for schema in schemas]
    largest = max(range(len(tools)), key=sizes.__getitem__)
    what = "can be served where a call must match it; titles and descriptions do not count"
    if sizes[largest] > MAX_EMBEDDED_SCHEMA_BYTES:
        raise InvalidRequest(
            "chat.tools",
            f'the parameters of tool "{tools[largest].name}" have {sizes[largest]} bytes as a JSON schema; '
            f"at most {MAX_EMBEDDED_SCHEMA_BYTES} {what}",
        )
    if sum(sizes) > MAX_EMBEDDED_BYTES:
        raise InvalidRequest(
            "chat.tools",
            f"the parameters of the {len(tools)} tools have {sum(sizes)} bytes as JSON schemas, those of "
            f'"{tools[largest].name}" the most with {sizes[largest]}; at most {MAX_EMBEDDED_BYTES} {what}',
        )
    return schemas


def _schema(tool: Tool) -> str:
    schema = json.loads(tool.parameters) if tool.parameters else _NOTHING
    # Nobody but the model reads prose, and a grammar has less room than a prompt.
    for found in subschemas(schema):
        for key in _PROSE:
            found.pop(key, None)
    whole = {"type": "object"} | schema | {"x-guidance": _KEPT_TO_THE_LETTER}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _marker(text: str, special_ids: Mapping[str, int]) -> str:
    return f"<[{special_ids[text]}]> " if text in special_ids else _literal(text)


def _literal(text: str) -> str:
    return json.dumps(text) + " " if text else ""
