"""grpc.health.v1: a `Watch` that is pushed, and that no watcher can hold up."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthServicer

from saguaro.errors import Unavailable
from saguaro.wire.status import status_of

_MAX_WATCHERS = 1024  # gateways and probes of one port; each holds a stream, and no queue
_WRITE_SECONDS = 60.0  # for a watcher to take one status; several times the keepalive, which ends what is dead

_Status = health_pb2.HealthCheckResponse


class HealthService(HealthServicer):  # type: ignore[misc]  # grpc has no types
    """The status of each service of a port.

    Who sets a status waits for nobody. Each watcher is sent the latest status as soon as it takes it: of those that
    come while it does not read, it sees the last. Nothing is kept for a watcher but what it was sent last.

    The servicer of grpcio-health-checking writes to watchers under a lock that `set` needs: one watcher that does not
    read then holds up every change, and the end of the server.
    """

    def __init__(self, *, max_watchers: int = _MAX_WATCHERS, write_seconds: float = _WRITE_SECONDS) -> None:
        """Watchers beyond `max_watchers` are refused; one that takes no status within `write_seconds` is let go."""
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._num_watchers = 0
        self._max_watchers = max_watchers
        self._write_seconds = write_seconds

    def set(self, service: str, *, is_serving: bool) -> None:
        """From now on; of no effect after `close`."""
        if not self._is_closed:
            self._put(service, _Status.SERVING if is_serving else _Status.NOT_SERVING)

    def close(self) -> None:
        """NOT_SERVING for good."""
        self._is_closed = True
        for service in self._statuses:
            self._put(service, _Status.NOT_SERVING)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        """The status now; NOT_FOUND for a service that is not here."""
        status = self._statuses.get(request.service)
        if status is None:
            known = ", ".join(sorted(filter(None, self._statuses)))
            await context.abort(grpc.StatusCode.NOT_FOUND, f'no service "{request.service}" here; there are {known}')
        return _response(status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """The status now and at every change, until the watcher goes."""
        if self._num_watchers >= self._max_watchers:
            refusal = Unavailable(f"{self._num_watchers} calls watch this health; it takes {self._max_watchers}")
            await context.abort_with_status(status_of(refusal))
        self._num_watchers += 1
        try:
            await self._watch(request.service, context)
        finally:
            self._num_watchers -= 1

    async def _watch(self, service: str, context: Any) -> None:
        sent = None
        while True:
            changed = self._changed  # of now: what comes while we write counts, too
            status = self._statuses.get(service, _Status.SERVICE_UNKNOWN)
            if status != sent:
                try:
                    async with asyncio.timeout(self._write_seconds):
                        await context.write(_response(status))
                except TimeoutError:
                    return
                sent = status
            else:
                await changed.wait()

    def _put(self, service: str, status: int) -> None:
        if self._statuses.get(service) != status:
            self._statuses[service] = status
            self._changed.set()
            self._changed = asyncio.Event()


def _response(status: Any) -> health_pb2.HealthCheckResponse:
    return health_pb2.HealthCheckResponse(status=status)
