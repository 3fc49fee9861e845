"""A format that nobody keeps to is a note to the reader; the schema around it is kept as before."""

import json
import re
from typing import Any

import pytest

from saguaro.engine.grammar import ConstraintCompiler
from saguaro.json_schema import KEPT_FORMATS, subschemas, without_unknown_formats
from saguaro.types import Constraint, ConstraintKind
from tests.unit.engine.grammar_walks import Walker

UNKNOWN = [
    *("password", "path", "file-path", "binary", "byte", "int64", "uri-reference", "uri-template", "iri", "regex"),
    *("json-pointer", "idn-email", "idn-hostname", "color", "x-made-up", ""),
]
NOTE = {"type": "string", "format": "password"}
PLACES: list[Any] = [
    NOTE,
    {"type": "object", "properties": {"a": NOTE}, "required": ["a"]},
    {"type": "object", "additionalProperties": NOTE},
    {"type": "object", "patternProperties": {"^a": NOTE}},
    {"type": "array", "items": NOTE},
    {"type": "array", "prefixItems": [NOTE, {"type": "array", "items": NOTE}]},
    {"anyOf": [{"type": "integer"}, NOTE]},
    {"oneOf": [{"type": "integer"}, NOTE]},
    {"allOf": [NOTE]},
    {"$ref": "#/$defs/secret", "$defs": {"secret": NOTE}},
    {"$ref": "#/definitions/secret", "definitions": {"secret": NOTE}},
    {"$ref": "#/components/schemas/a~1b", "components": {"schemas": {"a/b": NOTE}}},
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_format_lets_any_string_pass(name: str, compiler: ConstraintCompiler, walker: Walker):
    schema = {"type": "string", "format": name, "maxLength": 20}
    state = compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))
    state.advance(walker.encode('"anything goes!"'))
    assert state.may_end


@pytest.mark.parametrize("schema", PLACES, ids=json.dumps)
def test_it_is_an_annotation_wherever_a_schema_may_stand(schema: Any, compiler: ConstraintCompiler):
    compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))
    compiler.compile(Constraint(ConstraintKind.GRAMMAR, f'start: "a" %json {json.dumps(schema)}'))


@pytest.mark.parametrize("name", sorted(KEPT_FORMATS))
def test_a_format_that_can_be_kept_is_kept(name: str, compiler: ConstraintCompiler, walker: Walker):
    schema = {"type": "string", "format": name}
    assert without_unknown_formats(json.dumps(schema)) == json.dumps(schema)
    state = compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))
    with pytest.raises(Exception, match="is not allowed by the constraint"):
        state.advance(walker.encode('"?? "'))


def test_a_kept_format_beside_an_unknown_one_constrains_as_before(compiler: ConstraintCompiler, walker: Walker):
    schema = {"type": "object", "properties": {"d": {"type": "string", "format": "date"}, "p": NOTE}, "required": ["d"]}
    start = compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))
    for seed in range(5):
        answer = json.loads(walker.decode(walker.walk(start, seed)))
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", answer["d"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"format": {"const": "password"}}, "required": ["format"]},
        {"enum": [{"format": "password"}, 1]},
        {"const": {"format": "password", "items": {"format": "path"}}},
        {"type": "string", "default": {"format": "password"}, "examples": [{"format": "password"}]},
    ],
)
def test_what_is_a_value_or_a_name_stays(schema: Any):
    assert json.loads(without_unknown_formats(json.dumps(schema))) == schema


def test_a_text_without_unknown_formats_stays_to_the_letter():
    text = '{ "type":"number", "minimum": 1.10, "maximum": 1e400 }'
    assert without_unknown_formats(text) is text


def test_schemas_that_refer_to_themselves_are_found_once():
    schema = {"$ref": "#", "properties": {"a": {"$ref": "#/properties/a"}}, "items": [{"$ref": "#/items/0"}, True]}
    assert len(list(subschemas(schema))) == 3


def test_the_deepest_schema_that_can_be_read_is_walked_through():
    text = '{"items":' * 900 + '{"format": "path"}' + "}" * 900
    assert sum(1 for _ in subschemas(json.loads(text))) == 901
