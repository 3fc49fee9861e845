"""Each parameter out of bounds is a 400 whose details name the field, judged by the gateway itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.errors import InvalidRequest
from saguaro.v1 import common_pb2, gateway_pb2, gateway_pb2_grpc
from saguaro.wire.status import error_of
from tests.unit.gateway.house import running_house

Sampling, Bias = common_pb2.SamplingParams, common_pb2.LogitBias

CASES: list[tuple[str, dict[str, Any]]] = [
    ("sampling.temperature", {"sampling": Sampling(temperature=-1)}),
    ("sampling.top_p", {"sampling": Sampling(top_p=0)}),
    ("sampling.min_p", {"sampling": Sampling(min_p=1.5)}),
    ("sampling.repetition_penalty", {"sampling": Sampling(repetition_penalty=0)}),
    ("sampling.presence_penalty", {"sampling": Sampling(presence_penalty=2.5)}),
    ("sampling.frequency_penalty", {"sampling": Sampling(frequency_penalty=float("nan"))}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[Bias(token_id=5, bias=101)])}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[Bias(token_id=5), Bias(token_id=5)])}),
    ("sampling.logit_bias", {"sampling": Sampling(logit_bias=[Bias(token_id=99_999)])}),
    ("sampling.stop_token_ids", {"sampling": Sampling(stop_token_ids=[99_999])}),
    ("sampling.stop_token_ids", {"sampling": Sampling(stop_token_ids=[5] * 129)}),
    ("sampling.min_tokens", {"sampling": Sampling(min_tokens=9), "max_tokens": 8}),
    ("max_tokens", {"max_tokens": 0}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": ["a"] * 17}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("sampling.choice", {"sampling": Sampling(choice=2**32 - 1), "n": 2}),
    ("top_logprobs", {"top_logprobs": 21, "logprobs": True}),
    ("top_logprobs", {"top_logprobs": 1}),
    ("prompt", {}),
]


@pytest.mark.parametrize(("field", "request_fields"), CASES)
def test_a_parameter_out_of_bounds_is_refused_by_its_field(
    text_folder: Path, field: str, request_fields: dict[str, Any]
) -> None:
    prompt = {} if field == "prompt" else {"text": "Tell"}
    request = gateway_pb2.GenerateRequest(**prompt, **request_fields)

    async def scenario() -> None:
        async with running_house(text_folder) as house, grpc.aio.insecure_channel(house.address) as channel:
            call = gateway_pb2_grpc.GatewayServiceStub(channel).Generate(request)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            error = error_of(refused.value, "the gateway")
            assert isinstance(error, InvalidRequest)
            assert error.field == field
            assert not house.verifier.requests

    asyncio.run(scenario())
