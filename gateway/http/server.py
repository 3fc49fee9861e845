"""The HTTP port: uvicorn in the event loop of the gRPC server, under its signals and with its time to drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from gateway.http.connected import BoundedListener, Connected
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, ServiceFault
from saguaro.server import Connections, Sparingly, connection_limit, kept_up, port_tls

logger = logging.getLogger(__name__)

_NUM_PUBLIC_PORTS = 2  # this one and gRPC's share the descriptors
_ADMIN_CONNECTIONS = 16
_ACCEPTED_SHARE, _MOST_ACCEPTED = 8, 100  # one turn of the loop accepts that part of the limit, and at most so many
_CUT_SECONDS = 2.0  # for calls to say that they were cut

# uvicorn warns of every request that is no HTTP, and strangers can send many.
_uvicorn_sparingly = Sparingly()


class HttpServer:
    """Life: `start` (bound and serving) -> `drain` (no new connections; running requests go on) -> `stop`."""

    def __init__(
        self,
        settings: GatewaySettings,
        app: ASGIApp,
        *,
        is_admin: bool = False,
        cut: Callable[[str], None] = lambda because: None,
    ) -> None:
        """On the HTTP port of the settings, or on their admin port. `cut` ends the calls that outlast the drain."""
        self._settings = settings
        self._host = settings.admin_host if is_admin else settings.host
        self._wanted_port = settings.admin_port if is_admin else settings.http_port
        self._is_admin = is_admin
        self._cut = cut
        tls = port_tls(settings)
        self._scheme = "http" if tls is None else "https"
        self._context = None if tls is None else tls.reloading_context()
        self._app = app
        self._server: _Server | None = None
        self._listener: BoundedListener | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._draining_since: float | None = None

    @property
    def port(self) -> int:
        """The bound port; with port 0 in the settings, the one that the system chose."""
        return self._port

    async def start(self) -> None:
        """Bind and listen, unless the settings have no port. Raises ConfigurationError where it cannot be had."""
        if self._wanted_port is None:
            return
        name, settings = "admin" if self._is_admin else "http", self._settings
        limit = _ADMIN_CONNECTIONS if self._is_admin else connection_limit(settings, _NUM_PUBLIC_PORTS)
        connections = Connections(limit, None if self._is_admin else settings.max_connections_per_address)
        num_accepted = min(max(limit // _ACCEPTED_SHARE, 4), _MOST_ACCEPTED)
        bound = _listening(self._host, self._wanted_port, name)
        self._port = int(bound.getsockname()[1])
        app = Connected(
            self._app, connections, receive_seconds=settings.receive_seconds, idle_seconds=settings.idle_seconds
        )
        self._server = _Server(self._uvicorn_config(app, num_accepted))
        listener = self._listener = BoundedListener.of(bound, connections, settings.receive_seconds)
        logging.getLogger("uvicorn.error").addFilter(_uvicorn_sparingly)
        self._tasks = [
            asyncio.create_task(self._server.serve([listener])),
            kept_up(app.sweep, f"the watch on idle connections of the {name} port"),
        ]
        logger.info("%s on %s://%s:%d, up to %d connections", name, self._scheme, self._host, self.port, limit)

    async def watch(self) -> None:
        """Until cancelled. Raises ServiceFault where the port ends though nobody asked it to."""
        if self._tasks:
            await asyncio.wait(self._tasks[:1])
            if self._draining_since is None:
                serving = self._tasks[0]
                cause = None if serving.cancelled() else serving.exception()
                raise ServiceFault(f"port {self._port} is not served any more") from cause
        await asyncio.Event().wait()

    def drain(self) -> None:
        """Begin to end; `stop` waits for it."""
        if self._server is not None and self._draining_since is None:
            self._draining_since = time.monotonic()
            self._server.should_exit = True

    async def stop(self) -> None:
        """Running requests have the drain's time from `drain` on, which this implies; then they are cut."""
        self.drain()
        if self._draining_since is None:
            return
        serving, sweeping = self._tasks
        seconds = self._settings.drain_seconds
        remaining = self._draining_since + seconds - time.monotonic()
        await asyncio.wait([serving], timeout=max(remaining, 0.0))
        if not serving.done():
            self._cut(f"the gateway drained for {seconds:g} s and ends")
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        await serving

    def _uvicorn_config(self, app: ASGIApp, backlog: int) -> uvicorn.Config:
        context = self._context
        return uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=backlog,
            timeout_keep_alive=math.ceil(self._settings.idle_seconds),
            timeout_graceful_shutdown=math.ceil(self._settings.drain_seconds + _CUT_SECONDS),
            ssl_context_factory=None if context is None else lambda *_: context,
        )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the gRPC server's, which tells us to drain.
        yield


def _listening(host: str, port: int, name: str) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigurationError(
            f"the gateway cannot listen for HTTP on {host}:{port}: {error.strerror}; choose another with "
            f"--{name}-port, or none"
        ) from None
