"""Whatever a model would rather say, constrained to a schema it writes JSON that the schema allows."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from saguaro.engine.grammar import ConstraintCompiler
from saguaro.types import Constraint, ConstraintKind
from tests.unit.engine.grammar_walks import Walker
from tests.unit.engine.json_schemas import SCHEMAS

NUM_WALKS = 6


def json_schema(schema: Any) -> Constraint:
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))


def judge(schema: Any) -> Draft202012Validator:
    formats = FormatChecker(["date", "uuid", "ipv4"])
    formats.checks("date-time", raises=ValueError)(
        lambda text: bool(datetime.datetime.fromisoformat(text.upper().replace(":60", ":59")))  # leap seconds exist
    )
    return Draft202012Validator(schema, format_checker=formats)


def test_there_are_fifty_schemas() -> None:
    assert len(SCHEMAS) == 50


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_random_answer_parses_and_validates(name: str, compiler: ConstraintCompiler, walker: Walker) -> None:
    start, judged_by = compiler.compile(json_schema(SCHEMAS[name])), judge(SCHEMAS[name])
    for seed in range(NUM_WALKS):
        judged_by.validate(json.loads(walker.decode(walker.walk(start, seed))))


def test_a_json_object_is_an_object_of_whatever_content(compiler: ConstraintCompiler, walker: Walker) -> None:
    start = compiler.compile(Constraint(ConstraintKind.JSON_OBJECT))
    for seed in range(NUM_WALKS):
        assert isinstance(json.loads(walker.decode(walker.walk(start, seed))), dict)


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        (SCHEMAS["required properties"], '{"x": 1, "y": -20, "z": [null, "more"]}'),
        (SCHEMAS["required properties"], '{\n    "x": 1,\n    "y": 2\n}'),
        (SCHEMAS["nested objects"], '{"from":{"x":0,"y":0},"to":{"x":1,"y":1}}'),
        (SCHEMAS["anchored pattern"], '"AB-123"'),
        (SCHEMAS["string of bounded length"], '"éé"'),
        (SCHEMAS["multiple of seven"], "49"),
        (SCHEMAS["any value"], '[1.5e3, {"é": "\\n"}, true]'),
    ],
)
def test_what_validates_can_be_written(schema: Any, valid: str, compiler: ConstraintCompiler, walker: Walker) -> None:
    """The other direction: a mask that allowed too little would pass every walk above."""
    state = compiler.compile(json_schema(schema))
    state.advance(walker.encode(valid))
    assert state.may_end


def test_white_space_between_json_tokens_comes_to_an_end(compiler: ConstraintCompiler, walker: Walker) -> None:
    state = compiler.compile(json_schema(SCHEMAS["required properties"]))
    state.advance(walker.encode("{" + 32 * "\n"))
    assert {walker.decode([token_id]).strip()[:1] for token_id in walker.allowed(state)} == {'"'}
