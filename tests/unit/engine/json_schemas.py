"""Fifty schemas in the manner of the JSON-Schema-Test-Suite: one keyword or one meeting of keywords each."""

from __future__ import annotations

from typing import Any

_POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}
_CLOSED = {"additionalProperties": False}

SCHEMAS: dict[str, Any] = {
    # --- types ---
    "any value": {},
    "true allows all": True,
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "object": {"type": "object"},
    "array": {"type": "array"},
    "several types": {"type": ["integer", "null", "boolean"]},
    # --- enum and const ---
    "enum of strings": {"enum": ["red", "green", "blue"]},
    "enum of mixed values": {"enum": [1, "one", None, True, [1, 2], {"a": 1}]},
    "enum with a type": {"type": "string", "enum": ["a", "b", 'quote"d', "é"]},
    "const string": {"const": "fixed"},
    "const object": {"const": {"a": [1, 2, {"b": None}]}},
    # --- objects ---
    "properties without required": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"const": "x"}}},
    "required properties": _POINT,
    "no other properties": {**_POINT, **_CLOSED},
    "required without a property of its own": {"type": "object", "required": ["name"], "properties": {}},
    "other properties of a type": {"type": "object", "additionalProperties": {"type": "integer"}},
    "optional and required in one": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}},
        "required": ["b"],
        **_CLOSED,
    },
    "pattern properties": {"type": "object", "patternProperties": {"^n_[a-z]{1,4}$": {"type": "integer"}}, **_CLOSED},
    "no property at all": {"type": "object", "properties": {}, **_CLOSED},
    "nested objects": {
        "type": "object",
        "properties": {"from": {**_POINT, **_CLOSED}, "to": {**_POINT, **_CLOSED}},
        "required": ["from", "to"],
        **_CLOSED,
    },
    "a name that needs escapes": {
        "type": "object",
        "properties": {'say "hi"\n\\': {"const": 1}},
        "required": ['say "hi"\n\\'],
        **_CLOSED,
    },
    # --- arrays ---
    "array of integers": {"type": "array", "items": {"type": "integer"}},
    "at least two items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
    "at most three items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    "exactly four items": {"type": "array", "items": {"enum": [0, 1]}, "minItems": 4, "maxItems": 4},
    "empty array": {"type": "array", "maxItems": 0},
    "tuple by prefixItems": {"type": "array", "prefixItems": [{"type": "string"}, {"const": 2}], "items": False},
    "matrix": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "minItems": 1,
        "maxItems": 3,
    },
    # --- strings ---
    "string of bounded length": {"type": "string", "minLength": 2, "maxLength": 5},
    "string of one length": {"type": "string", "minLength": 3, "maxLength": 3},
    "anchored pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "pattern anywhere": {"type": "string", "pattern": "[a-z]"},
    "date": {"type": "string", "format": "date"},
    "date and time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    # --- numbers ---
    "integer in a range": {"type": "integer", "minimum": -12, "maximum": 345},
    "number in an open range": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "integer above": {"type": "integer", "minimum": 1000},
    "multiple of seven": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    # --- combinations ---
    "anyOf": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    "oneOf told apart by a tag": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}},
                "required": ["kind", "r"],
                **_CLOSED,
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "square"}, "side": {"type": "integer"}},
                "required": ["kind", "side"],
                **_CLOSED,
            },
        ]
    },
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    # --- references ---
    "$ref into $defs": {
        "$defs": {"point": {**_POINT, **_CLOSED}},
        "type": "array",
        "items": {"$ref": "#/$defs/point"},
        "minItems": 1,
        "maxItems": 2,
    },
    "linked list": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
                "required": ["value", "next"],
                **_CLOSED,
            }
        },
        "$ref": "#/$defs/node",
    },
    # --- as clients send them ---
    "tool call": {
        "type": "object",
        "title": "get_weather",
        "description": "Weather of a place",
        "properties": {
            "place": {"type": "string", "maxLength": 30, "description": "Where"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        },
        "required": ["place", "unit", "days"],
        **_CLOSED,
    },
}
