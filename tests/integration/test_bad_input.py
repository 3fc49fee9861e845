"""What cannot be served is refused in a sentence that names the limit, and the services stay up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Client
from saguaro.errors import InvalidRequest, ModelNotFound
from saguaro.v1 import common_pb2, gateway_pb2, verifier_pb2
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub


@pytest.fixture(scope="module")
def trio(tiny_target: Path, tiny_draft: Path) -> Iterator[Trio]:
    with Trio(target=str(tiny_target), draft=str(tiny_draft)) as running:
        yield running
        with Client(running.gateway_address) as client:  # after all that was refused
            assert client.generate([65, 66, 67], max_tokens=5, ignore_eos=True).finish().num_generated_tokens == 5
        assert all(process.exit_code is None for process in running.processes.values())


GATEWAY_CASES = {
    "empty prompt": (gateway_pb2.GenerateRequest(text=""), "empty|at least 1"),
    "no prompt": (gateway_pb2.GenerateRequest(), "prompt"),
    "prompt beyond the context": (
        gateway_pb2.GenerateRequest(tokens=gateway_pb2.TokenPrompt(token_ids=[65] * 5000)), "5000.*4096"),
    "token beyond the vocabulary": (
        gateway_pb2.GenerateRequest(tokens=gateway_pb2.TokenPrompt(token_ids=[999])), "999.*258"),
    "negative temperature": (
        gateway_pb2.GenerateRequest(text="x", sampling=common_pb2.SamplingParams(temperature=-1)), "-1.*0"),
    "temperature not a number": (
        gateway_pb2.GenerateRequest(text="x", sampling=common_pb2.SamplingParams(temperature=float("nan"))), "nan"),
    "top_p of 0": (gateway_pb2.GenerateRequest(text="x", sampling=common_pb2.SamplingParams(top_p=0)), "top_p is 0"),
    "top_p above 1": (gateway_pb2.GenerateRequest(text="x", sampling=common_pb2.SamplingParams(top_p=1.5)), "1.5"),
    "max_tokens of 0": (gateway_pb2.GenerateRequest(text="x", max_tokens=0), "max_tokens is 0.*1"),
    "unknown role": (
        gateway_pb2.GenerateRequest(chat=gateway_pb2.ChatPrompt(messages=[])), "message"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(GATEWAY_CASES))
def test_the_gateway_refuses_it_with_the_limit(trio: Trio, name: str) -> None:
    request, pattern = GATEWAY_CASES[name]
    with grpc.insecure_channel(trio.gateway_address) as channel:
        with pytest.raises(grpc.RpcError, match=f"(?s){pattern}") as refused:
            list(GatewayServiceStub(channel).Generate(request, timeout=20))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_model_is_not_found(trio: Trio) -> None:
    with Client(trio.gateway_address) as client, pytest.raises(ModelNotFound, match=r"no-such-model.*target"):
        client.generate("x", model="no-such-model").finish()


def test_the_sdk_raises_the_typed_error_with_the_field(trio: Trio) -> None:
    with Client(trio.gateway_address) as client, pytest.raises(InvalidRequest) as refused:
        client.generate([65] * 5000).finish()
    assert refused.value.field


VERIFIER_CASES = {
    "empty prompt": (verifier_pb2.VerifierServiceGenerateRequest(request_id="r"), "empty"),
    "no request id": (verifier_pb2.VerifierServiceGenerateRequest(prompt_token_ids=[65]), "request_id"),
    "prompt beyond the context": (
        verifier_pb2.VerifierServiceGenerateRequest(request_id="r", prompt_token_ids=[65] * 4096), "4096.*4096"),
    "token beyond the vocabulary": (
        verifier_pb2.VerifierServiceGenerateRequest(request_id="r", prompt_token_ids=[258]), "258.*258"),
    "no seed at temperature > 0": (
        verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=[65], sampling=common_pb2.SamplingParams(temperature=1)), "seed"),
    "bad top_p": (
        verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=[65], sampling=common_pb2.SamplingParams(top_p=2)), "top_p is 2"),
    "stop token beyond the vocabulary": (
        verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=[65], sampling=common_pb2.SamplingParams(stop_token_ids=[300])),
        "300.*258"),
    "bad penalty": (
        verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=[65], sampling=common_pb2.SamplingParams(presence_penalty=3)),
        "presence_penalty is 3.*2"),
    "too many alternatives": (
        verifier_pb2.VerifierServiceGenerateRequest(
            request_id="r", prompt_token_ids=[65], logprobs=True, top_logprobs=21), "top_logprobs is 21.*20"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(VERIFIER_CASES))
def test_the_verifier_judges_for_itself(trio: Trio, name: str) -> None:
    request, pattern = VERIFIER_CASES[name]
    with grpc.insecure_channel(trio.verifier_address) as channel:
        with pytest.raises(grpc.RpcError, match=f"(?s){pattern}") as refused:
            list(VerifierServiceStub(channel).Generate(request, timeout=20))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_model_that_the_verifier_does_not_serve_is_not_found(trio: Trio) -> None:
    request = verifier_pb2.VerifierServiceGenerateRequest(request_id="r", prompt_token_ids=[65], model="other")
    with grpc.insecure_channel(trio.verifier_address) as channel:
        with pytest.raises(grpc.RpcError, match="other") as refused:
            list(VerifierServiceStub(channel).Generate(request, timeout=20))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
