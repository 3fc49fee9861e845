"""A port that ends though nobody asked it to is a fault of the service, not a silence."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette

from gateway.http.server import HttpServer
from saguaro.config import GatewaySettings
from saguaro.errors import ServiceFault


def test_a_port_that_dies_is_a_fault_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        server = HttpServer(GatewaySettings(http_port=0), Starlette())
        await server.start()
        watching = asyncio.create_task(server.watch())
        assert server._server is not None
        monkeypatch.setattr(server._server, "on_tick", broken)
        with pytest.raises(ServiceFault, match=f"port {server.port} is not served"):
            await asyncio.wait_for(watching, 10)
        with pytest.raises(RuntimeError, match="broke"):
            await server.stop()

    async def broken(counter: int) -> bool:
        raise RuntimeError("the loop of the server broke")

    asyncio.run(scenario())


def test_a_port_that_drains_is_none() -> None:
    async def scenario() -> None:
        server = HttpServer(GatewaySettings(http_port=0, drain_seconds=0.1), Starlette())
        await server.start()
        watching = asyncio.create_task(server.watch())
        await server.stop()
        await asyncio.sleep(0)
        assert not watching.done()
        watching.cancel()

    asyncio.run(scenario())
