"""TLS of gRPC and HTTP ports on real sockets: who comes in, what the others learn, and certificates that change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from saguaro.channel import Tls, channel_options, dialled_at, open_aio_channel
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, Unavailable
from saguaro.server import GrpcServer
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.status import error_of


class Servicer(gateway_pb2_grpc.GatewayServiceServicer):
    async def Tokenize(self, request: Any, context: Any) -> pb.TokenizeResponse:
        return pb.TokenizeResponse(token_ids=[7])


def settings(folder: Path | None, *, mutual: bool = False) -> GatewaySettings:
    if folder is None:
        return GatewaySettings(port=0, http_port=0)
    return GatewaySettings(
        port=0,
        http_port=0,
        tls_cert=folder / "gateway.pem",
        tls_key=folder / "gateway.key",
        tls_client_ca=folder / "ca.pem" if mutual else None,
    )


@contextlib.asynccontextmanager
async def grpc_port(folder: Path | None, *, mutual: bool = False) -> AsyncIterator[str]:
    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(Servicer(), server)
        return ["saguaro.v1.GatewayService"]

    server = GrpcServer(settings(folder, mutual=mutual), register, role="gateway")
    await server.start()
    await server.admit()
    try:
        yield server.address
    finally:
        await server.stop()


async def ask(address: str, tls: Tls | None) -> list[int]:
    # A pool of its own: gRPC would share a connection among channels to one address.
    async with open_aio_channel(address, tls, [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = gateway_pb2_grpc.GatewayServiceStub(channel)
        try:
            return list((await stub.Tokenize(pb.TokenizeRequest(), timeout=10)).token_ids)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, f"the gateway at {dialled_at(address, tls)}") from None


def with_certificate(folder: Path, ca: Path | None = None) -> Tls:
    return Tls((ca or folder) / "ca.pem", folder / "client.pem", folder / "client.key")


def test_the_right_certificates_come_in_with_and_without_one_of_the_client(certs: Path) -> None:
    async def scenario() -> None:
        async with grpc_port(certs) as address:
            assert await ask(address, Tls(certs / "ca.pem")) == [7]
        async with grpc_port(certs, mutual=True) as address:
            assert await ask(address, with_certificate(certs)) == [7]

    asyncio.run(scenario())


def test_whoever_does_not_fit_learns_whom_he_dialled_and_what_may_be_wrong(certs: Path, strangers: Path) -> None:
    hung_up = "asks for TLS, or for a client certificate"
    cases = [
        (certs, False, Tls(strangers / "ca.pem"), r"\(dialled over TLS\).*its certificate is not trusted here"),
        (certs, False, None, hung_up),
        (certs, True, None, hung_up),
        (certs, True, Tls(certs / "ca.pem"), hung_up),
        (certs, True, with_certificate(strangers, certs), hung_up),
        (None, False, Tls(certs / "ca.pem"), r"\(dialled over TLS\).*not in TLS"),
    ]

    async def scenario() -> None:
        for folder, mutual, tls, message in cases:
            async with grpc_port(folder, mutual=mutual) as address:
                with pytest.raises(Unavailable, match=f"the gateway at {address}.*{message}"):
                    await ask(address, tls)

    asyncio.run(scenario())


def copied(certs: Path, to: Path) -> None:
    for file in certs.iterdir():
        shutil.copy(file, to / file.name)


def test_a_grpc_port_shows_changed_certificates_to_the_next_connection_and_no_broken_ones(
    certs: Path, strangers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copied(certs, tmp_path)

    async def scenario() -> None:
        async with grpc_port(tmp_path, mutual=True) as address:
            assert await ask(address, with_certificate(certs)) == [7]
            (tmp_path / "gateway.pem").write_text("broken")
            assert await ask(address, with_certificate(certs)) == [7]
            assert "the certificates stay as they were" in caplog.text
            copied(strangers, tmp_path)
            assert await ask(address, with_certificate(strangers)) == [7]
            with pytest.raises(Unavailable):
                await ask(address, with_certificate(certs))

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())


@contextlib.asynccontextmanager
async def http_port(folder: Path, *, mutual: bool = False) -> AsyncIterator[str]:
    door = HttpDoor(request_timeout_seconds=5, max_body_bytes=1000)
    server = HttpServer(settings(folder, mutual=mutual), door.app)
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def knock(url: str, ca: Path, client: Path | None = None) -> int:
    context = ssl.create_default_context(cafile=ca / "ca.pem")
    if client is not None:
        context.load_cert_chain(client / "client.pem", client / "client.key")
    async with httpx2.AsyncClient(verify=context) as asking:
        return (await asking.get(f"{url}/livez")).status_code


def test_https_has_the_same_certificates_and_asks_for_those_of_clients(certs: Path, strangers: Path) -> None:
    async def scenario() -> None:
        async with http_port(certs) as address:
            assert await knock(f"https://{address}", certs) == 200
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await knock(f"https://{address}", strangers)
            with pytest.raises(httpx2.TransportError):
                await knock(f"http://{address}", certs)
        async with http_port(certs, mutual=True) as address:
            assert await knock(f"https://{address}", certs, certs) == 200
            for client in (None, strangers):
                with pytest.raises(httpx2.TransportError):
                    await knock(f"https://{address}", certs, client)

    asyncio.run(scenario())


def test_https_shows_changed_certificates_to_the_next_connection_and_no_broken_ones(
    certs: Path, strangers: Path, tmp_path: Path
) -> None:
    copied(certs, tmp_path)

    async def scenario() -> None:
        async with http_port(tmp_path, mutual=True) as address:
            assert await knock(f"https://{address}", certs, certs) == 200
            (tmp_path / "gateway.key").write_text("broken")
            assert await knock(f"https://{address}", certs, certs) == 200
            copied(strangers, tmp_path)
            assert await knock(f"https://{address}", strangers, strangers) == 200
            with pytest.raises(httpx2.TransportError):
                await knock(f"https://{address}", strangers, certs)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_cert": "gateway.pem"}, "tls_cert is .*gateway.pem, tls_key None"),
        ({"tls_client_ca": "ca.pem"}, "TLS takes a certificate and its key"),
        ({"tls_cert": "gateway.pem", "tls_key": "verifier.key"}, "gateway.pem with tls_key .*verifier.key: .*mismatch"),
        ({"tls_cert": "none.pem", "tls_key": "gateway.key"}, "none.pem with tls_key .*No such file"),
        (
            {"tls_cert": "gateway.pem", "tls_key": "gateway.key", "tls_client_ca": "gateway.key"},
            "tls_client_ca .*key: ",
        ),
    ],
)
def test_files_that_do_not_fit_are_one_sentence_at_the_start(certs: Path, given: dict[str, str], message: str) -> None:
    paths: dict[str, Any] = {name: certs / file for name, file in given.items()}
    server = GrpcServer(GatewaySettings(port=0, **paths), lambda server: [], role="gateway")
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(server.start())


def test_a_client_certificate_without_its_key_or_that_is_not_there_is_named(certs: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the client certificate is .*client.pem, its key None"):
        Tls(certs / "ca.pem", certs / "client.pem").credentials()
    with pytest.raises(ConfigurationError, match=r"cannot read .*none.pem: No such file"):
        Tls(certs / "none.pem").credentials()
