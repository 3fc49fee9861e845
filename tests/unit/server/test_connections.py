"""Which connection makes room for a new one, and which is refused; on plain numbers, and on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.http.server import HttpServer
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError
from saguaro.server import Connections, GrpcServer, connection_limit
from saguaro.server.connections import peer_of
from saguaro.server.grpc_connections import peer_of_call
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from tests.unit.server.test_grpc_server import Servicer


class House:
    """Connections named by port, of one address or several, on a clock that is set by hand."""

    def __init__(self, limit: int, per_address: int | None = None) -> None:
        self.now = 0.0
        self.closed: list[int] = []
        self.connections = Connections(limit, per_address, clock=lambda: self.now)

    def come(self, port: int, address: str = "a", within_seconds: float | None = None) -> bool:
        if not self.connections.make_room(address):
            return False
        self.connections.opened((address, port), lambda: self.closed.append(port), within_seconds)
        return True


def test_the_quietest_makes_room_and_one_that_has_a_call_does_not() -> None:
    house = House(3)
    assert all(house.come(port) for port in (1, 2, 3))
    with house.connections.calling(("a", 1)):
        assert house.come(4)
        assert house.closed == [2]
    assert house.come(5)  # 1 has just ended its call, so it comes last
    assert house.closed == [2, 3]
    assert [peer[1] for peer in house.connections.peers] == [1, 4, 5]


def test_where_all_have_calls_the_new_one_is_refused() -> None:
    house = House(2)
    with contextlib.ExitStack() as calls:
        for port in (1, 2):
            house.come(port)
            calls.enter_context(house.connections.calling(("a", port)))
        assert not house.come(3)
    assert house.come(3)
    assert house.closed == [2]  # whose call ended first


def test_a_call_that_does_not_count_leaves_its_connection_the_first_to_go() -> None:
    house = House(2)
    house.come(1)
    house.come(2)
    house.connections.call_began(("a", 2))
    house.connections.call_ended(("a", 2), counts=False)
    house.come(3)
    assert house.closed == [2]


def test_an_address_that_has_what_it_may_have_makes_room_of_its_own() -> None:
    house = House(10, per_address=2)
    assert all(house.come(port, address) for port, address in ((1, "b"), (2, "a"), (3, "a"), (4, "a")))
    assert house.closed == [2]
    with house.connections.calling(("a", 3)), house.connections.calling(("a", 4)):
        assert not house.come(5)
        assert house.come(6, "b")


def test_time_runs_out_until_a_call_begins_and_again_from_its_end() -> None:
    house = House(10)
    house.come(1, within_seconds=5)
    house.come(2, within_seconds=5)
    house.connections.call_began(("a", 2))
    house.now = 6
    house.connections.close_overdue()
    assert house.closed == [1]
    house.connections.call_ended(("a", 2), 10)
    house.now = 15
    house.connections.close_overdue()
    assert house.closed == [1]
    house.now = 16
    house.connections.close_overdue()
    assert house.closed == [1, 2]


def test_peers_are_the_same_however_they_are_written() -> None:
    assert peer_of_call("ipv4:127.0.0.1:5") == peer_of("127.0.0.1", 5) == peer_of("::ffff:127.0.0.1", 5)
    assert peer_of_call("ipv6:%5B::1%5D:5") == peer_of("::1", 5)
    assert peer_of_call("unix:") is None


def test_the_default_limit_leaves_descriptors_to_the_service() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        assert 50 <= connection_limit(GatewaySettings(), 2) <= (512 - 64) // 2
        with pytest.raises(ConfigurationError, match="max_connections is 400; the gateway may open 512 files"):
            connection_limit(GatewaySettings(max_connections=400), 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # nobody would set an event
            await asyncio.sleep(0.02)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_grpc_s_own_connections_are_found_and_those_without_calls_make_room() -> None:
    async def scenario() -> None:
        servicer = Servicer()
        server = GrpcServer(GatewaySettings(port=0, max_connections=8), servicer.register, role="gateway")
        await server.start()
        await server.admit()
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = gateway_pb2_grpc.GatewayServiceStub(channel).Generate(pb.GenerateRequest())
            assert (await call.read()).delta.text == "first"
            for _ in range(5):
                idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
                for item in idle:
                    item.setblocking(False)
                await until(lambda: sum(map(is_closed, idle)) >= 12 - 6)  # noqa: B023
                for item in idle:
                    item.close()
            servicer.let_go.set()
            assert (await call.read()).delta.text == "last"
        await server.stop()

    asyncio.run(scenario())


def test_a_tls_handshake_that_never_comes_is_ended_in_time(certs: Path) -> None:
    async def scenario() -> None:
        tls = {"tls_cert": certs / "gateway.pem", "tls_key": certs / "gateway.key"}
        settings = GatewaySettings(http_port=0, receive_seconds=0.3, max_connections=8, **tls)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError("nobody asks")

        server = HttpServer(settings, app)
        await server.start()
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for item in idle:
            item.setblocking(False)
        await until(lambda: all(map(is_closed, idle)))
        for item in idle:
            item.close()
        await server.stop()

    asyncio.run(scenario())
