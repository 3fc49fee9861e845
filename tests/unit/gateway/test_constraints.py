"""A constraint on its way from a caller to the verifier, and what is refused on that way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.client import AsyncClient
from saguaro.client.requests import GenerateOptions, build_request
from saguaro.errors import InvalidRequest
from saguaro.types import Constraint, ConstraintKind
from saguaro.v1 import common_pb2, gateway_pb2, gateway_pb2_grpc
from saguaro.wire.common import sampling_from_proto
from saguaro.wire.status import error_of
from tests.unit.gateway.house import running_house

SCHEMA = {"type": "object", "properties": {"größe": {"const": None}}}
LONGEST = 65536


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"json_schema": None, "json_object": False, "regex": None}, None),
        ({"json_schema": '{"type": "null"}'}, Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "null"}')),
        ({"json_schema": SCHEMA}, Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA, ensure_ascii=False))),
        ({"json_schema": True}, Constraint(ConstraintKind.JSON_SCHEMA, "true")),
        ({"json_object": True}, Constraint(ConstraintKind.JSON_OBJECT)),
        ({"regex": "a+"}, Constraint(ConstraintKind.REGEX, "a+")),
        ({"grammar": 'root ::= "a"'}, Constraint(ConstraintKind.GRAMMAR, 'root ::= "a"')),
    ],
)
def test_each_way_to_say_a_constraint_in_python_is_one_of_the_contract(
    options: GenerateOptions, expected: Constraint | None
) -> None:
    sampling, _ = sampling_from_proto(build_request("Hi", options).sampling)
    assert sampling.constraint == expected


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"regex": "a", "grammar": "b"}, "sampling.grammar", "regex and grammar are both given"),
        ({"json_schema": {}, "json_object": True}, "sampling.json_object", "json_schema and json_object are both"),
        ({"json_schema": {"const": {1, 2}}}, "sampling.json_schema", "set is not JSON serializable"),
        ({"json_schema": {"const": float("nan")}}, "sampling.json_schema", "cannot be written as JSON"),
        ({"json_schema": "{"}, "sampling.json_schema", "is not JSON"),
        ({"regex": ""}, "sampling.regex", "is empty"),
        ({"grammar": "x" * 16385}, "sampling.grammar", "has 16385 bytes; at most 16384"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos", "ignore_eos is true beside regex"),
    ],
)
def test_what_is_no_constraint_is_refused_by_its_field_before_it_is_sent(
    options: GenerateOptions, field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        build_request("Hi", options)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "request_fields"),
    [
        ("sampling.json_schema", {"sampling": {"json_schema": "[]"}}),
        ("sampling.json_schema", {"sampling": {"json_schema": '"' + "a" * LONGEST + '"'}}),
        ("sampling.regex", {"sampling": {"regex": " "}}),
        ("sampling.grammar", {"sampling": {"grammar": "x" * 16385}}),
        ("ignore_eos", {"sampling": {"json_object": {}}, "ignore_eos": True}),
    ],
)
def test_the_gateway_refuses_them_by_field_itself(
    text_folder: Path, field: str, request_fields: dict[str, Any]
) -> None:
    sampling = common_pb2.SamplingParams(**request_fields.pop("sampling"))
    request = gateway_pb2.GenerateRequest(text="Hi", sampling=sampling, **request_fields)

    async def scenario() -> None:
        async with running_house(text_folder) as house, grpc.aio.insecure_channel(house.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await gateway_pb2_grpc.GatewayServiceStub(channel).Generate(request).read()
            error = error_of(refused.value, "the gateway")
            assert isinstance(error, InvalidRequest)
            assert error.field == field
            assert not house.verifier.requests

    asyncio.run(scenario())


def test_the_verifier_s_refusal_reaches_the_caller_with_its_field(text_folder: Path) -> None:
    refusal = InvalidRequest("sampling.regex", "sampling.regex cannot be served: look-around")

    async def scenario() -> None:
        async with running_house(text_folder, error=refusal) as house, AsyncClient(house.address) as client:
            with pytest.raises(InvalidRequest, match="look-around") as refused:
                await client.generate("Hi", regex="(?=a)").finish()
            assert refused.value.field == "sampling.regex"
            assert house.verifier.requests[0].sampling.constraint == Constraint(ConstraintKind.REGEX, "(?=a)")

    asyncio.run(scenario())
