"""A real trio with mTLS on every port and keys at both doors: who fits is served, and no log tells what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.channel import Tls
from saguaro.cli.certs import write_certificates
from saguaro.cli.service_process import ServiceProcess
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import verifier_pb2
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub
from saguaro.v1.speculator_pb2 import GetSpeculatorInfoRequest
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.fortress import KEY, Fortress

SECRET = "the cactus's secret"
SMALL_TALK: dict[str, Callable[[Any], Any]] = {
    "gateway": lambda channel: GatewayServiceStub(channel).ListModels(pb.ListModelsRequest(), timeout=10),
    "verifier": lambda channel: VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=10),
    "speculator": lambda channel: SpeculatorServiceStub(channel).GetSpeculatorInfo(
        GetSpeculatorInfoRequest(), timeout=10
    ),
}


def test_tokens_flow_through_mutual_tls_on_all_hops_with_and_without_speculation(fortress: Fortress) -> None:
    ask: dict[str, Any] = {"text": "Hi", "max_tokens": 60}
    speculated, plain = fortress.generate(**ask), fortress.generate(**ask, disable_speculation=True)
    assert speculated[-1].finished.speculation.num_accepted_tokens > 0
    ids = [[token for event in events for token in event.delta.token_ids] for events in (speculated, plain)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 60
    with fortress.http() as client:
        answer = client.post("/completions", json={"prompt": "Hi", "max_tokens": 60, "temperature": 0})
        text = "".join(event.delta.text + event.finished.text for event in speculated)
        assert answer.json()["choices"][0]["text"] == text


@pytest.mark.parametrize("role", SMALL_TALK)
def test_no_port_talks_to_whoever_comes_in_plain_text_or_without_a_certificate(fortress: Fortress, role: str) -> None:
    assert fortress.certs is not None
    for tls in (None, Tls(fortress.certs / "ca.pem")):
        with fortress.channel(role, tls) as channel, pytest.raises(grpc.RpcError) as refused:
            SMALL_TALK[role](channel)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_gateway_that_trusts_another_authority_says_so_and_does_not_start(fortress: Fortress, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    lines: list[str] = []
    flags = ["--verifier", fortress.trio.verifier_address, "--port", "0", "--http-port", "none"]
    gateway = ServiceProcess(
        "gateway",
        [*flags, "--startup-seconds", "0.1", "--tls-ca", str(tmp_path / "ca.pem")],
        on_line=lambda _, line: lines.append(line),
        on_progress=lambda _: None,
    )
    assert gateway.wait(60)
    gateway.close()
    assert gateway.exit_code == 1
    named = f"the verifier at {fortress.trio.verifier_address} (dialled over TLS) cannot be reached"
    assert any(named in line and "its certificate is not trusted here" in line for line in lines), lines


def test_without_a_key_mutual_tls_alone_opens_neither_door(fortress: Fortress) -> None:
    with fortress.channel("gateway", fortress.tls) as channel, pytest.raises(grpc.RpcError) as refused:
        GatewayServiceStub(channel).ListModels(pb.ListModelsRequest(), timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with fortress.http() as client:
        assert client.get("/models", headers={"authorization": "none"}).status_code == 401


def test_no_log_of_any_service_has_a_prompt_or_a_key_even_at_debug_level_and_where_requests_fail(
    fortress: Fortress,
) -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5}
    started, *_ = fortress.generate(text=SECRET, max_tokens=5, logprobs=True, prompt_logprobs=True)
    secret_ids = list(started.started.prompt_token_ids)
    fortress.generate(tokens=pb.TokenPrompt(token_ids=secret_ids), max_tokens=5)
    for fields in ({"text": SECRET * 4000}, {"text": SECRET, "max_tokens": 0}, {"text": SECRET, "model": SECRET}):
        with pytest.raises(grpc.RpcError):
            fortress.generate(**fields)
    with fortress.http() as client:
        path = "/chat/completions"
        assert client.post(path, json=chat).status_code == 200
        assert client.post(path, json=chat | {"stream": True, "stop": [SECRET]}).status_code == 200
        assert client.post(path, json=chat | {"regex": f"{SECRET}("}).status_code == 400
        assert client.post(path, json=chat | {"messages": [{"role": SECRET, "content": SECRET}]}).status_code == 400
        assert client.post(path, json=chat | {"max_tokens": SECRET}).status_code == 400
        broken = json.dumps(chat)[:-1]
        assert client.post(path, content=broken, headers={"content-type": "application/json"}).status_code == 400
        with client.stream("POST", path, json=chat | {"stream": True, "max_tokens": 500}) as left:
            next(left.iter_lines())
    for role in SMALL_TALK:
        log = (fortress.logs / f"{role}.log").read_text()
        assert "serving on" in log, role
        for trace in (SECRET, KEY, ", ".join(map(str, secret_ids[:6]))):
            assert trace not in log, role
