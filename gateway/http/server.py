"""The HTTP port: uvicorn in the event loop of the gRPC server, under its signals and with its time to drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError
from saguaro.server import port_tls

logger = logging.getLogger(__name__)


class HttpServer:
    """Life: `start` (bound and serving) -> `drain` (no new connections; running requests go on) -> `stop`."""

    def __init__(self, settings: GatewaySettings, app: ASGIApp, *, is_admin: bool = False) -> None:
        """On the HTTP port of the settings, or on their admin port."""
        self._host = settings.admin_host if is_admin else settings.host
        self._wanted_port = settings.admin_port if is_admin else settings.http_port
        self._name = "admin" if is_admin else "http"
        tls = port_tls(settings)
        self._scheme = "http" if tls is None else "https"
        context = None if tls is None else tls.reloading_context()
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
            ssl_context_factory=None if context is None else lambda *_: context,
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The bound port; with port 0 in the settings, the one that the system chose."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Bind and listen, unless the settings have no port. Raises ConfigurationError where it cannot be had."""
        if self._wanted_port is None:
            return
        self._socket = _listening(self._host, self._wanted_port, self._name)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        logger.info("%s on %s://%s:%d", self._name, self._scheme, self._host, self.port)

    def drain(self) -> None:
        """Begin to end; `stop` waits for it."""
        self._server.should_exit = True

    async def stop(self) -> None:
        """Running requests have the drain's time from `drain` on, which this implies."""
        self.drain()
        if self._serving is not None:
            await self._serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the gRPC server's, which tells us to drain.
        yield


def _listening(host: str, port: int, name: str) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"the gateway cannot listen for HTTP on {host}:{port}: {error.strerror}; choose another with "
            f"--{name}-port, or none"
        ) from None
