"""Constrained answers of three real processes: kept, the same without speculation, refused in words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.errors import InvalidRequest
from saguaro.types import FinishReason

COLOURS = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "shade": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "shade"],
    "additionalProperties": False,
}
SUM = r"[0-9]{1,4}(\+[0-9]{1,4}){3}"
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "json_schema": {"json_schema": COLOURS},
    "regex": {"regex": SUM},
    "grammar": {"grammar": 'root ::= num ("+" num){3}\nnum ::= [0-9]{1,4}'},
}


@pytest.fixture(scope="module")
def trio(tiny_trio: Trio) -> Trio:
    return tiny_trio


def ask(trio: Trio, **options: Any) -> list[Answer]:
    with Client(trio.gateway_address) as client, client.generate(list(range(65, 105)), **options) as stream:
        stream.finish()
        return list(stream.results)


def assert_kept(kind: str, text: str) -> None:
    if kind == "json_schema":
        document = json.loads(text)
        assert (set(document), document["colour"] in ("red", "green")) == ({"colour", "shade"}, True)
        assert 0 <= document["shade"] <= 9
    else:
        assert re.fullmatch(SUM, text)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_choices_keep_to_the_constraint_and_are_those_without_speculation(
    trio: Trio, kind: str, temperature: float
) -> None:
    options: dict[str, Any] = {**CONSTRAINTS[kind], "temperature": temperature, "seed": 5, "n": 3, "max_tokens": 300}
    drafted, plain = ask(trio, **options), ask(trio, **options, speculation=False)
    for answer in drafted:
        assert answer.finish_reason is FinishReason.STOP
        assert_kept(kind, answer.text)
    assert [answer.token_ids for answer in drafted] == [answer.token_ids for answer in plain]
    assert sum(answer.speculation.num_accepted_tokens for answer in drafted) > 0


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"regex": "(?=a)b"}, "sampling.regex", "look-around"),
        ({"json_schema": {"not": {}}}, "sampling.json_schema", "Unimplemented keys"),
        ({"grammar": "start: missing"}, "sampling.grammar", "missing"),
    ],
)
def test_what_cannot_be_compiled_is_refused_before_the_answer_starts(
    trio: Trio, options: dict[str, Any], field: str, message: str
) -> None:
    with Client(trio.gateway_address) as client, client.generate("Hi", **options) as stream:
        with pytest.raises(InvalidRequest, match=message) as refused:
            stream.finish()
        assert stream.started is None
    assert refused.value.field == field


def test_the_command_line_takes_a_schema(trio: Trio) -> None:
    command = [sys.executable, "-m", "saguaro.cli", "generate", "Hi", "--json", "--json-schema", json.dumps(COLOURS)]
    output = subprocess.run(
        [*command, "--address", trio.gateway_address], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert_kept("json_schema", json.loads(output)["text"])
