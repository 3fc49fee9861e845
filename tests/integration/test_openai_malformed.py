"""Bodies that break the published schema: each is a 4xx with a sentence, never a 5xx, and the gateway lives on."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.http.openapi import openapi_document
from saguaro.cli.trio import Trio
from tests.integration.emulated import emulated

NUM_BODIES = 200
# Field by field what is right, to break one at a time.
RIGHT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def schema_of(document: dict[str, Any], path: str) -> Draft202012Validator:
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return Draft202012Validator(body | {"components": document["components"]})


DOCUMENT = openapi_document()
SCHEMAS = {path: schema_of(DOCUMENT, path) for path in RIGHT}


@st.composite
def malformed(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path, and a body with one field of the schema broken or missing, or whose text is cut or no JSON at all."""
    path = draw(st.sampled_from(sorted(RIGHT)))
    right, validator = RIGHT[path], SCHEMAS[path]
    name = validator.schema["$ref"].rpartition("/")[2]
    fields = sorted(DOCUMENT["components"]["schemas"][name]["properties"])
    match draw(st.sampled_from(["broken", "broken", "broken", "missing", "cut", "noise"])):
        case "broken":
            field = draw(st.sampled_from(fields))
            value = draw(JSON.filter(lambda value: not validator.is_valid(right | {field: value})))
            return path, json.dumps(right | {field: value}).encode()
        case "missing":
            return path, json.dumps({"max_tokens": 1, draw(st.text(string.ascii_letters)): draw(JSON)}).encode()
        case "cut":
            text = json.dumps(right).encode()
            return path, text[: draw(st.integers(0, len(text) - 1))]
        case _:
            return path, draw(st.binary(max_size=200)) + b"\xff"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with emulated(tmp_path_factory.mktemp("malformed"), target_ms=1.0) as running:
        yield running


def test_200_malformed_bodies_are_refused_and_a_good_one_is_served_after_them(trio: Trio) -> None:
    seen: list[int] = []
    with httpx2.Client(base_url=trio.http_url.removesuffix("/v1"), timeout=30) as client:
        assert client.get("/openapi.json").json() == json.loads(json.dumps(DOCUMENT))

        @settings(
            max_examples=NUM_BODIES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        )
        @given(malformed())
        def refused(sent: tuple[str, bytes]) -> None:
            path, body = sent
            response = client.post(path, content=body, headers={"content-type": "application/json"})
            seen.append(response.status_code)
            assert 400 <= response.status_code < 500, (body, response.text)
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert len(error["message"]) > 10

        refused()
        assert len(seen) >= NUM_BODIES
        for path, body in RIGHT.items():
            assert client.post(path, json=body).status_code == 200
    assert all(process.exit_code is None for process in trio.processes.values())
