"""One gRPC port: bind, start, serve until a signal, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from saguaro.bindable import try_to_bind
from saguaro.config import ServiceSettings
from saguaro.errors import ConfigurationError
from saguaro.server.connections import Connections, connection_limit
from saguaro.server.doorkeeper import Doorkeeper, Gate
from saguaro.server.grpc_connections import keep_room
from saguaro.server.health import HealthService
from saguaro.server.tls import port_tls
from saguaro.server.upkeep import kept_up

logger = logging.getLogger(__name__)

# Adds servicers to the server and returns the full names of their services.
Register = Callable[[grpc.aio.Server], Sequence[str]]
Hook = Callable[[], Awaitable[None]]
SayReady = Callable[[bool], Awaitable[None]]

_CUT_SECONDS = 1.0  # for calls to say that they were cut


class GrpcServer:
    """A port with health (a real Watch), reflection, typed errors and drain.

    Life: `start` (bound; health NOT_SERVING; calls answered Unavailable) -> `admit` (SERVING) -> `stop`.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        register: Register,
        *,
        role: str,
        gate: Gate | None = None,
        longest_call_seconds: float | None = None,
        num_ports: int = 1,
    ) -> None:
        """`num_ports` of the service share the process's descriptors."""
        self._gate = gate
        self._num_ports = num_ports
        self._longest_call_seconds = longest_call_seconds
        self._settings = settings
        self._register = register
        self._role = role
        self._health = HealthService()
        self._port: int | None = None
        self._keeping_room: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The bound port; with port 0 in the settings, the one that the system chose."""
        assert self._port is not None, "start() binds the port"
        return self._port

    @property
    def address(self) -> str:
        """host:port, as clients dial it."""
        return _join(self._settings.host, self.port)

    async def start(self) -> None:
        """Bind and listen. Raises ConfigurationError where the port cannot be had."""
        _check_free(self._role, self._settings.host, self._settings.port)
        limit = connection_limit(self._settings, self._num_ports)
        self._connections = Connections(limit, self._settings.max_connections_per_address)
        self._doorkeeper = Doorkeeper(
            f"the {self._role} is starting",
            self._gate,
            self._longest_call_seconds,
            receive_seconds=self._settings.receive_seconds,
            connections=self._connections,
        )
        self._server = grpc.aio.server(interceptors=[self._doorkeeper], options=_server_options(self._settings, limit))
        services = self._register(self._server)
        self._doorkeeper.guard(services)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        self._services = ("", *sorted(services))
        self._set_health(is_serving=False)
        tls, address = port_tls(self._settings), _join(self._settings.host, self._settings.port)
        try:
            if tls is None:
                self._port = self._server.add_insecure_port(address)
            else:
                self._port = self._server.add_secure_port(address, tls.grpc_credentials())
        except RuntimeError as error:
            raise ConfigurationError(f"{self._role} cannot listen on {self._settings.host}: {error}") from None
        await self._server.start()
        work = functools.partial(keep_room, self._connections, self._port)
        self._keeping_room = kept_up(work, "the watch on idle connections")

    async def admit(self) -> None:
        """Take calls and say so."""
        self._doorkeeper.open()
        await self.say_ready(True)
        over = "plain text" if port_tls(self._settings) is None else "TLS"
        logger.info("%s serving on %s, %s", self._role, self.address, over)

    async def say_ready(self, is_ready: bool) -> None:
        """What health says from now on; calls are admitted in any case."""
        self._set_health(is_serving=is_ready)

    async def stop(self, drain_seconds: float = 0.0, on_drain: Hook | None = None) -> None:
        """Health NOT_SERVING, refuse new calls, call `on_drain`, wait for running calls, then cut what is left.

        What is cut ends with Unavailable: a gateway goes on with it at another verifier.
        """
        self._health.close()
        self._doorkeeper.close(f"the {self._role} is draining")
        if on_drain is not None:
            await on_drain()
        if drain_seconds > 0 and not await self._doorkeeper.wait_idle(drain_seconds):
            logger.warning("calls still running after a drain of %g s are cut", drain_seconds)
            self._doorkeeper.cut(f"the {self._role} drained for {drain_seconds:g} s and ends")
            await self._doorkeeper.wait_idle(_CUT_SECONDS)
        await self._close()

    async def abandon(self, because: str) -> None:
        """The service cannot go on: health NOT_SERVING, running calls end with Unavailable, and the port is closed."""
        self._health.close()
        self._doorkeeper.close(because)
        self._doorkeeper.cut(because)
        await self._doorkeeper.wait_idle(_CUT_SECONDS)
        await self._close()

    async def _close(self) -> None:
        # No grace: what remains are health watches, which never end by themselves, and calls that had their time.
        await self._server.stop(None)
        if self._keeping_room is not None:
            self._keeping_room.cancel()
            await asyncio.gather(self._keeping_room, return_exceptions=True)

    def _set_health(self, *, is_serving: bool) -> None:
        for service in self._services:
            self._health.set(service, is_serving=is_serving)


async def serve(
    settings: ServiceSettings,
    register: Register,
    *,
    role: str,
    gate: Gate | None = None,
    longest_call_seconds: float | None = None,
    num_ports: int = 1,
    ready: Hook | None = None,
    keep_ready: Callable[[SayReady], Awaitable[None]] | None = None,
    on_drain: Hook | None = None,
    on_stop: Hook | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends the process at once.

    `ready` runs with the port bound and health NOT_SERVING. `keep_ready`, of a service whose readiness comes and goes,
    runs while calls are admitted and says whether health is SERVING; what it raises ends the service without a drain,
    and is raised. `on_drain` is told that no new calls come, while
    old ones run: streams without an end of their own must end then. `on_stop` runs after the last call, in any case.
    `gate` judges each call before it runs; `longest_call_seconds` ends calls that are not over by then. `num_ports`
    share the process's descriptors.
    """
    server = GrpcServer(
        settings, register, role=role, gate=gate, longest_call_seconds=longest_call_seconds, num_ports=num_ports
    )
    async with contextlib.AsyncExitStack() as owned:
        if on_stop is not None:
            owned.push_async_callback(on_stop)
        stop = owned.enter_context(_stop_signal())
        await server.start()
        owned.push_async_callback(server.stop)  # where `ready` fails; harmless after the drain
        if ready is None or await _completes_before(ready, stop):
            await server.admit()
            try:
                await _kept_until(stop, server, keep_ready)
            except Exception:
                await server.abandon(f"the {role} has failed")
                raise
        logger.info("%s draining for up to %g s", role, settings.drain_seconds)
        await server.stop(settings.drain_seconds, on_drain)
    logger.info("%s stopped", role)


@contextlib.contextmanager
def _stop_signal() -> Iterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _kept_until(
    stop: asyncio.Event, server: GrpcServer, keep_ready: Callable[[SayReady], Awaitable[None]] | None
) -> None:
    """Until `stop` is set. Raises what `keep_ready` raises: nobody would hear of it otherwise."""
    waiting = asyncio.ensure_future(stop.wait())
    keeping = None if keep_ready is None else asyncio.ensure_future(keep_ready(server.say_ready))
    tasks = [waiting] if keeping is None else [waiting, keeping]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if keeping is not None and keeping.done():
            await keeping
            await waiting
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _completes_before(hook: Hook, stop: asyncio.Event) -> bool:
    """Whether `hook` ended before `stop` was set; it is cancelled otherwise. What it raises is raised."""
    work, waiting = asyncio.ensure_future(hook()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return False
        await work
        return True
    finally:
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)


def _server_options(settings: ServiceSettings, max_connections: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.server_handshake_timeout_ms", int(settings.receive_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(settings.idle_seconds * 1000)),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", int(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Clients ping at our own interval, between calls too; a third of it leaves room for clocks and settings.
        ("grpc.http2.min_ping_interval_without_data_ms", int(settings.keepalive_seconds * 1000 / 3)),
        ("grpc.keepalive_permit_without_calls", 1),
        # A second service on the same port must fail, not share the calls.
        ("grpc.so_reuseport", 0),
    ]


def _check_free(role: str, host: str, port: int) -> None:
    if port == 0:
        return
    try:
        try_to_bind(host, port)
    except OSError as error:
        raise ConfigurationError(
            f"{role} cannot listen on {_join(host, port)}: {error.strerror}; choose another with --port or --host"
        ) from None


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
