"""A real trio with mTLS on every port and keys at both doors: who fits is served, and no log tells what was asked."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from saguaro.channel import Tls, channel_options, open_channel
from saguaro.cli.certs import write_certificates
from saguaro.cli.service_process import ServiceProcess
from saguaro.cli.trio import Trio
from saguaro.keys import KeyRecord, hash_of, new_key, write_keys
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import verifier_pb2
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub
from saguaro.v1.speculator_pb2 import GetSpeculatorInfoRequest
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.waiting import until

SECRET = "the cactus's secret"
KEY = new_key()
SMALL_TALK: dict[str, Callable[[Any], Any]] = {
    "gateway": lambda channel: GatewayServiceStub(channel).ListModels(pb.ListModelsRequest(), timeout=10),
    "verifier": lambda channel: VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=10),
    "speculator": lambda channel: SpeculatorServiceStub(channel).GetSpeculatorInfo(
        GetSpeculatorInfoRequest(), timeout=10
    ),
}


@dataclass(frozen=True)
class Fortress:
    trio: Trio
    certs: Path
    logs: Path

    @property
    def tls(self) -> Tls:
        return Tls(self.certs / "ca.pem", self.certs / "client.pem", self.certs / "client.key")

    def channel(self, role: str, tls: Tls | None) -> Any:
        # A pool of its own: gRPC would share a connection among channels to one address.
        options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        return open_channel(self.trio.address(role), tls, options)

    def https(self) -> httpx2.Client:
        context = ssl.create_default_context(cafile=self.certs / "ca.pem")
        context.load_cert_chain(self.certs / "client.pem", self.certs / "client.key")
        url = self.trio.http_url.replace("http:", "https:")
        return httpx2.Client(base_url=url, verify=context, headers={"authorization": f"Bearer {KEY}"}, timeout=60)


def tls_flags(certs: Path, role: str) -> list[str]:
    flags = [
        "--tls-cert",
        f"{certs}/{role}.pem",
        "--tls-key",
        f"{certs}/{role}.key",
        "--tls-client-ca",
        f"{certs}/ca.pem",
    ]
    if role != "speculator":
        flags += ["--tls-ca", f"{certs}/ca.pem"]
        flags += ["--tls-client-cert", f"{certs}/{role}.pem", "--tls-client-key", f"{certs}/{role}.key"]
    return [*flags, "--log-level", "debug"]


@pytest.fixture(scope="module")
def fortress(tiny_target: Path, tiny_draft: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    certs, logs = tmp_path_factory.mktemp("certs"), tmp_path_factory.mktemp("logs")
    write_certificates(certs)
    keys = certs / "keys.json"
    write_keys(keys, [KeyRecord(name="ann", sha256=hash_of(KEY))])
    with Trio(
        target=str(tiny_target),
        draft=str(tiny_draft),
        # Fixed, so that speculation happens whether it pays on this machine or not.
        verifier_flags=[*tls_flags(certs, "verifier"), "--policy", "fixed:4,8,inf", "--reconnect-seconds", "0.2"],
        # Random weights do not survive int8: the draft would never agree.
        speculator_flags=[*tls_flags(certs, "speculator"), "--linear", "stock"],
        gateway_flags=[*tls_flags(certs, "gateway"), "--keys-file", str(keys)],
        tls=Tls(certs / "ca.pem", certs / "client.pem", certs / "client.key"),
        log_folder=logs,
    ) as trio:
        yield Fortress(trio, certs, logs)


def generate(fortress: Fortress, **fields: Any) -> list[Any]:
    with fortress.channel("gateway", fortress.tls) as channel:
        call = GatewayServiceStub(channel).Generate(
            pb.GenerateRequest(**fields), metadata=[("authorization", f"Bearer {KEY}")], timeout=60
        )
        return list(call)


def test_tokens_flow_through_mutual_tls_on_all_hops_with_and_without_speculation(fortress: Fortress) -> None:
    with fortress.channel("verifier", fortress.tls) as channel:
        info = verifier_pb2.GetVerifierInfoRequest()
        until(lambda: VerifierServiceStub(channel).GetVerifierInfo(info, timeout=5).speculating)
    ask: dict[str, Any] = {"text": "Hi", "max_tokens": 60, "ignore_eos": True}
    speculated, plain = generate(fortress, **ask), generate(fortress, **ask, disable_speculation=True)
    assert speculated[-1].finished.speculation.num_accepted_tokens > 0
    ids = [[token for event in events for token in event.delta.token_ids] for events in (speculated, plain)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 60
    with fortress.https() as client:
        answer = client.post(
            "/completions", json={"prompt": "Hi", "max_tokens": 60, "ignore_eos": True, "temperature": 0}
        )
        assert answer.json()["choices"][0]["text"] == "".join(
            event.delta.text + event.finished.text for event in speculated
        )


@pytest.mark.parametrize("role", SMALL_TALK)
def test_no_port_talks_to_whoever_comes_in_plain_text_or_without_a_certificate(fortress: Fortress, role: str) -> None:
    for tls in (None, Tls(fortress.certs / "ca.pem")):
        with fortress.channel(role, tls) as channel, pytest.raises(grpc.RpcError) as refused:
            SMALL_TALK[role](channel)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_gateway_that_trusts_another_authority_says_so_and_does_not_start(fortress: Fortress, tmp_path: Path) -> None:
    write_certificates(tmp_path)
    lines: list[str] = []
    flags = [
        "--verifier",
        fortress.trio.verifier_address,
        "--port",
        "0",
        "--http-port",
        "none",
        "--startup-seconds",
        "0.1",
    ]
    gateway = ServiceProcess(
        "gateway",
        [*flags, "--tls-ca", str(tmp_path / "ca.pem")],
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
    with fortress.https() as client:
        assert client.get("/models", headers={"authorization": "none"}).status_code == 401


def test_no_log_of_any_service_has_a_prompt_or_a_key_even_at_debug_level_and_where_requests_fail(
    fortress: Fortress,
) -> None:
    secret_ids = list(SECRET.encode())
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5}
    generate(fortress, text=SECRET, max_tokens=5, logprobs=True, prompt_logprobs=True)
    generate(fortress, tokens=pb.TokenPrompt(token_ids=secret_ids), max_tokens=5)
    for fields in ({"text": SECRET * 400}, {"text": SECRET, "max_tokens": 0}, {"text": SECRET, "model": SECRET}):
        with pytest.raises(grpc.RpcError):
            generate(fortress, **fields)
    with fortress.https() as client:
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
    logs = {role: (fortress.logs / f"{role}.log").read_text() for role in SMALL_TALK}
    for role, text in logs.items():
        assert "serving on" in text, role
        for traces in (SECRET, KEY, ", ".join(map(str, secret_ids[:6]))):
            assert traces not in text, role
