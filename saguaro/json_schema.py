"""What every reader of JSON schemas does alike: finds all schemas in one, and leaves out what constrains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

# Formats that constrained output keeps to. Any other is an annotation: a note to the reader, as the standard has it.
KEPT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_SCHEMAS = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema"),
    *("anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
)


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """`schema` and every schema in it that is an object, each once, the outer ones first.

    Values are no schemas (`enum`, `const`, `default`, `examples`), nor is a property whose name is a keyword. Where a
    `$ref` leads within the document counts, wherever that is. Each may be changed while it is at hand.
    """
    waiting, seen = [schema], set[int]()
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting.extend(found)
        elif isinstance(found, dict) and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting.extend(found[key] for key in _SCHEMAS if key in found)
            maps = (found.get(key) for key in _MAPS_OF_SCHEMAS)
            waiting.extend(value for each in maps if isinstance(each, dict) for value in each.values())
            waiting.append(_referred_to(schema, found.get("$ref")))


def without_unknown_formats(text: str) -> str:
    """The text of a schema without formats that nobody keeps to; the same text where it has none. Raises ValueError."""
    schema = json.loads(text)
    changed = False
    for found in subschemas(schema):
        name = found.get("format")
        if isinstance(name, str) and name not in KEPT_FORMATS:
            del found["format"]
            changed = True
    return json.dumps(schema, ensure_ascii=False) if changed else text


def _referred_to(schema: Any, reference: object) -> Any:
    """The part of the document that a JSON pointer names; None for what is not there, or in another document."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    part = schema
    for step in unquote(reference[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list):
            part = part[int(key)] if key.isdecimal() and int(key) < len(part) else None
        else:
            part = part.get(key) if isinstance(part, dict) else None
    return part
