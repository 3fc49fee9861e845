"""An emulated trio with mTLS on every port, keys at both doors, and few places: how tests come in and look around."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2

from saguaro.channel import Tls, channel_options, open_aio_channel, open_channel
from saguaro.cli.certs import write_certificates
from saguaro.cli.trio import Trio
from saguaro.keys import KeyRecord, hash_of, new_key, write_keys
from saguaro.types import TokenIds
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import speculator_pb2, verifier_pb2
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from saguaro.wire.status import error_of
from tests.integration.waiting import until

KEY = new_key()
MAX_RUNNING, MAX_WAITING = 16, 48
PROFILE = """
vocabulary = 600
context_limit = 4096
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 4
[draft]
base_ms = 0.5
"""


@dataclass(frozen=True)
class Fortress:
    """`certs` None: no TLS."""

    trio: Trio
    certs: Path | None
    logs: Path

    @property
    def tls(self) -> Tls | None:
        """What fits everywhere."""
        if self.certs is None:
            return None
        return Tls(self.certs / "ca.pem", self.certs / "client.pem", self.certs / "client.key")

    def channel(self, role: str, tls: Tls | None) -> Any:
        # A pool of its own: gRPC would share a connection among channels to one address.
        options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        return open_channel(self.trio.address(role), tls, options)

    def generate(self, **fields: Any) -> list[Any]:
        """Every event of one answer."""
        with self.channel("gateway", self.tls) as channel:
            request = pb.GenerateRequest(**fields)
            return list(GatewayServiceStub(channel).Generate(request, metadata=bearer(), timeout=60))

    @contextlib.asynccontextmanager
    async def asking(self) -> Any:
        """A stub for many answers at once, on one connection."""
        async with open_aio_channel(self.trio.gateway_address, self.tls, channel_options()) as channel:
            yield GatewayServiceStub(channel)

    def http(self, kind: Any = httpx2.Client) -> Any:
        """A client of OpenAI's API that comes in."""
        url = self.trio.http_url
        if self.certs is None:
            return kind(base_url=url, headers=dict(bearer()), timeout=60)
        url = url.replace("http:", "https:")
        return kind(base_url=url, verify=self.tls_context(), headers=dict(bearer()), timeout=60)

    def tls_context(self) -> ssl.SSLContext | None:
        """`tls`, for clients of HTTP."""
        if self.certs is None:
            return None
        context = ssl.create_default_context(cafile=self.certs / "ca.pem")
        context.load_cert_chain(self.certs / "client.pem", self.certs / "client.key")
        return context

    def is_free(self) -> bool:
        """No sequence anywhere, and every KV block of both models free."""
        with self.channel("verifier", self.tls) as channel:
            load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=5)
        with self.channel("speculator", self.tls) as channel:
            asked = speculator_pb2.GetSpeculatorInfoRequest()
            info = SpeculatorServiceStub(channel).GetSpeculatorInfo(asked, timeout=5)
        verifier_is_free = load.num_running == load.num_waiting == 0 and load.free_kv_blocks == load.num_kv_blocks
        return verifier_is_free and info.num_sequences == 0 and info.free_kv_blocks == info.num_kv_blocks

    def is_speculating(self) -> bool:
        with self.channel("verifier", self.tls) as channel:
            asked = verifier_pb2.GetVerifierInfoRequest()
            return bool(VerifierServiceStub(channel).GetVerifierInfo(asked, timeout=5).speculating)


def bearer() -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {KEY}")]


async def answer(stub: Any, prompt: str, *, max_tokens: int, seed: int = 0) -> TokenIds:
    """Raises from the error tree."""
    request = pb.GenerateRequest(text=prompt, max_tokens=max_tokens)
    request.sampling.temperature, request.sampling.seed = 0.8, seed
    ids: list[int] = []
    try:
        async for event in stub.Generate(request, metadata=bearer(), timeout=120):
            ids += event.delta.token_ids
    except grpc.aio.AioRpcError as error:
        raise error_of(error, "the gateway") from None
    return tuple(ids)


def _tls_flags(certs: Path, role: str) -> list[str]:
    flags = ["--tls-cert", f"{certs}/{role}.pem", "--tls-key", f"{certs}/{role}.key"]
    flags += ["--tls-client-ca", f"{certs}/ca.pem"]
    if role != "speculator":
        flags += ["--tls-ca", f"{certs}/ca.pem"]
        flags += ["--tls-client-cert", f"{certs}/{role}.pem", "--tls-client-key", f"{certs}/{role}.key"]
    return [*flags, "--log-level", "debug"]


@contextlib.contextmanager
def running_fortress(folder: Path) -> Iterator[Fortress]:
    certs = folder / "certs"
    write_certificates(certs)
    keys = certs / "keys.json"
    write_keys(keys, [KeyRecord(name="ann", sha256=hash_of(KEY))])
    bounds = ["--max-running", str(MAX_RUNNING), "--max-waiting", str(MAX_WAITING)]
    with Trio(
        emulate=str(_profile(folder)),
        verifier_flags=[*_tls_flags(certs, "verifier"), *bounds],
        speculator_flags=_tls_flags(certs, "speculator"),
        gateway_flags=[*_tls_flags(certs, "gateway"), "--keys-file", str(keys)],
        tls=Tls(certs / "ca.pem", certs / "client.pem", certs / "client.key"),
        log_folder=folder,
    ) as trio:
        fortress = Fortress(trio, certs, folder)
        until(fortress.is_speculating)
        yield fortress


@contextlib.contextmanager
def running_village(folder: Path) -> Iterator[Fortress]:
    """As `saguaro up` starts it: open to all, with places for many."""
    with Trio(emulate=str(_profile(folder)), log_folder=folder) as trio:
        village = Fortress(trio, None, folder)
        until(village.is_speculating)
        yield village


def _profile(folder: Path) -> Path:
    file = folder / "fortress.toml"
    file.write_text(PROFILE)
    return file
