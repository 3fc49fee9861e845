"""Stands before every call: admits it or not, counts it, and turns what it raises into a typed status."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any

import grpc

from saguaro.errors import DeadlineExceeded, SaguaroError, SequenceFault, Unavailable
from saguaro.wire.status import status_of

logger = logging.getLogger(__name__)

REQUEST_ID_KEY = "x-request-id"

# Judges a call by its metadata before it runs, in the call's own task; raises from the error tree.
Gate = Callable[[Mapping[str, str | bytes]], None]

_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id")


def current_request_id() -> str:
    """Id of the call that runs: the caller's `x-request-id`, else a random one. A fresh one outside of calls."""
    return _request_id.get(None) or secrets.token_hex(8)


class Doorkeeper(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor for the services given to `guard`; health and reflection pass by it."""

    def __init__(
        self, closed_because: str, gate: Gate | None = None, longest_call_seconds: float | None = None
    ) -> None:
        self._gate = gate
        self._longest_call_seconds = longest_call_seconds
        self._services: frozenset[str] = frozenset()
        self._closed_because: str | None = closed_because
        self._cut_because: str | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def guard(self, services: Collection[str]) -> None:
        """Full names of the services whose calls to stand before."""
        self._services = frozenset(services)

    def open(self) -> None:
        """Admit calls from now on."""
        self._closed_because = None

    def close(self, because: str) -> None:
        """Answer new calls Unavailable with `because`; running ones go on."""
        self._closed_because = because

    def cut(self, because: str) -> None:
        """End running calls with Unavailable and `because`: whoever can goes on with them elsewhere."""
        self._cut_because = because
        for task in self._calls:
            task.cancel()

    async def wait_idle(self, timeout_seconds: float) -> bool:
        """Whether the last running call ended within the timeout."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Wrap the handler of an admitted service; gRPC calls this for each incoming call."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.split("/")[1] not in self._services:
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        request_id = str(metadata.get(REQUEST_ID_KEY) or secrets.token_hex(8))
        return self._wrap(handler, method, request_id, metadata)

    def _wrap(self, handler: Any, method: str, request_id: str, metadata: Mapping[str, str | bytes]) -> Any:
        kind = _kind(handler)
        behavior = getattr(handler, kind)

        # Both are coroutines, the streaming one too: a cancelled call then ends inside our frames, and closes the
        # service's generator at once instead of when it is collected.
        async def answer(request: Any, context: Any) -> Any:
            async with self._call(method, request_id, context, metadata):
                return await behavior(request, context)

        async def stream(request: Any, context: Any) -> None:
            async with self._call(method, request_id, context, metadata):
                if not inspect.isasyncgenfunction(behavior):
                    await behavior(request, context)
                    return
                async with contextlib.aclosing(behavior(request, context)) as responses:
                    async for response in responses:
                        await context.write(response)

        wrapped: Callable[..., Any] = stream if handler.response_streaming else answer
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            wrapped,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    @contextlib.asynccontextmanager
    async def _call(
        self, method: str, request_id: str, context: Any, metadata: Mapping[str, str | bytes]
    ) -> AsyncIterator[None]:
        _request_id.set(request_id)
        try:
            with self._counted():
                if self._gate is not None:
                    self._gate(metadata)
                async with within(self._longest_call_seconds):
                    yield
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            if self._cut_because is None:
                raise
            await _abort(context, Unavailable(self._cut_because))
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a typed one
            await _abort(context, told(error, request_id, method))

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        if self._closed_because is not None:
            raise Unavailable(self._closed_because)
        task = asyncio.current_task()
        assert task is not None, "gRPC runs every call in a task of its own"
        self._calls.add(task)
        self._idle.clear()
        try:
            yield
        finally:
            self._calls.remove(task)
            if not self._calls:
                self._idle.set()


@contextlib.asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Raises DeadlineExceeded, and cancels what the block awaits, where it is not over in time."""
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            yield
    except TimeoutError:
        if not clock.expired():
            raise
        raise DeadlineExceeded(f"the call was not over within {seconds:g} s") from None


def told(error: Exception, request_id: str, what: str) -> SaguaroError:
    """What the caller is told of an error of the call `what`; of our own faults the log keeps the cause."""
    if isinstance(error, SequenceFault) or not isinstance(error, SaguaroError):
        logger.error("request %s: %s failed", request_id, what, exc_info=error)
    if isinstance(error, SaguaroError):
        return error
    return SequenceFault(f"internal error; the service's log has the cause under {request_id}")


def _kind(handler: Any) -> str:
    """Name of the handler's behavior attribute, as in `unary_stream`."""
    return "_".join(
        "stream" if streams else "unary" for streams in (handler.request_streaming, handler.response_streaming)
    )


async def _abort(context: Any, error: SaguaroError) -> None:
    status = status_of(error)
    await context.abort(status.code, status.details, status.trailing_metadata)
