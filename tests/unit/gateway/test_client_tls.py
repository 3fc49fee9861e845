"""Both clients over TLS, against a gateway that shows a certificate and asks for one."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import grpc
import pytest

from saguaro.client import NO_RETRY, AsyncClient, Client, Tls
from saguaro.errors import ConfigurationError, Unavailable
from saguaro.v1 import gateway_pb2_grpc
from tests.unit.gateway.test_client_retry import Gateway

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make, *name, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_a_client_with_the_right_files_is_served_and_others_are_told_who_refused(
    certificate: tuple[Path, Path],
) -> None:
    cert, key = certificate
    mutual = Tls(ca=cert, client_cert=cert, client_key=key)

    def ask(address: str, tls: Tls | None) -> str:
        with Client(address, tls=tls, api_key="k1", retry=NO_RETRY) as client:
            return client.generate("Hi", timeout_seconds=10).finish().text

    async def scenario() -> None:
        gateway = Gateway()
        server = grpc.aio.server()
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, server)
        pair = [(key.read_bytes(), cert.read_bytes())]
        credentials = grpc.ssl_server_credentials(pair, cert.read_bytes(), require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        address = f"127.0.0.1:{port}"
        try:
            assert await asyncio.to_thread(ask, address, mutual) == "ok"
            async with AsyncClient([address, f"localhost:{port}"], tls=mutual) as client:
                assert (await client.generate("Hi").finish()).text == "ok"
            assert {call["authorization"] for call in gateway.calls[:1]} == {"Bearer k1"}
            for wrong in (Tls(ca=cert), None):
                with pytest.raises(Unavailable, match=f"the gateway at {address} cannot be reached"):
                    await asyncio.to_thread(ask, address, wrong)
        finally:
            await server.stop(None)

    asyncio.run(scenario())


def test_files_that_cannot_be_used_are_named(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*none\.pem"):
        Client("127.0.0.1:1", tls=Tls(ca=tmp_path / "none.pem"))
    with pytest.raises(ConfigurationError, match="give both or neither"):
        Client("127.0.0.1:1", tls=Tls(client_cert=certificate[0]))
