"""A caller's `json_schema`, `json_object`, `regex` or `grammar` as the one constraint of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from saguaro.errors import InvalidRequest
from saguaro.types import Constraint, ConstraintKind

JsonSchema = str | Mapping[str, Any] | bool  # as text or as it is parsed


def constraint_of(
    json_schema: JsonSchema | None, json_object: bool, regex: str | None, grammar: str | None
) -> Constraint | None:
    """None where the output is free. Raises InvalidRequest for more than one, and for a schema that is not JSON."""
    given = {
        ConstraintKind.JSON_SCHEMA: None if json_schema is None else _schema_text(json_schema),
        ConstraintKind.JSON_OBJECT: "" if json_object else None,
        ConstraintKind.REGEX: regex,
        ConstraintKind.GRAMMAR: grammar,
    }
    constraints = [Constraint(kind, text) for kind, text in given.items() if text is not None]
    if len(constraints) > 1:
        first, second = (item.kind.name.lower() for item in constraints[:2])
        raise InvalidRequest(f"sampling.{second}", f"{first} and {second} are both given; an output has one constraint")
    return constraints[0] if constraints else None


def _schema_text(schema: JsonSchema) -> str:
    if isinstance(schema, str):
        return schema
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("sampling.json_schema", f"json_schema cannot be written as JSON: {error}") from error
