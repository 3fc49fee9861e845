"""Stands before every call: admits it or not, counts it, and turns what it raises into a typed status.

A call is judged by its metadata before its message is looked at, or even waited for.
"""

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
from google.protobuf.message import DecodeError

from saguaro.errors import DeadlineExceeded, InvalidRequest, SaguaroError, SequenceFault, Unavailable
from saguaro.server.connections import Connections
from saguaro.server.grpc_connections import calling
from saguaro.server.request_ids import RequestId
from saguaro.server.sparingly import Sparingly
from saguaro.wire.status import status_of

logger = logging.getLogger(__name__)

# Judges a call by its metadata before it runs, in the call's own task; raises from the error tree.
Gate = Callable[[Mapping[str, str | bytes]], None]

_request_id: contextvars.ContextVar[RequestId] = contextvars.ContextVar("request_id")
_undecodable = Sparingly()


def current_request_id() -> str:
    """The service's own id of the call that runs; a fresh one outside of calls."""
    known = _request_id.get(None)
    return secrets.token_hex(16) if known is None else known.own


class Doorkeeper(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor for the services given to `guard`; calls of others, health and reflection, are neither judged nor
    counted.

    `connections` are told of the calls, `receive_seconds` bounds the wait for the message of a call that has one.
    """

    def __init__(
        self,
        closed_because: str,
        gate: Gate | None = None,
        longest_call_seconds: float | None = None,
        *,
        receive_seconds: float | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._gate = gate
        self._longest_call_seconds = longest_call_seconds
        self._receive_seconds = receive_seconds
        self._connections = connections
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
        """Wrap the call's handler; gRPC calls this for each incoming call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        behavior, method = _behavior(handler), handler_call_details.method
        metadata = dict(handler_call_details.invocation_metadata or ())
        is_guarded = method.split("/")[1] in self._services
        admitted = self._admitted if is_guarded else _unjudged

        # A coroutine, also where the service's is a generator: a cancelled call then ends inside our frames, and closes
        # the generator at once instead of when it is collected. And for gRPC a stream of requests, even of one: of such
        # calls gRPC leaves it to us when to read, and what to make of bytes that are no message.
        async def serve(requests: Any, context: Any) -> None:
            async with self._typed(method, metadata, context), admitted(metadata, context):
                request = requests if handler.request_streaming else await self._only(requests, handler)
                with self._known_as_calling(context) if is_guarded else contextlib.nullcontext():
                    if not handler.response_streaming:
                        await context.write(await behavior(request, context))
                    elif not inspect.isasyncgenfunction(behavior):
                        await behavior(request, context)
                    else:
                        async with contextlib.aclosing(behavior(request, context)) as responses:
                            async for response in responses:
                                await context.write(response)

        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=handler.request_deserializer if handler.request_streaming else None,
            response_serializer=handler.response_serializer,
        )

    async def _only(self, requests: Any, handler: Any) -> Any:
        """The message of a call that has one."""
        try:
            async with asyncio.timeout(self._receive_seconds):
                async for message in requests:
                    return handler.request_deserializer(message)
        except TimeoutError:
            raise DeadlineExceeded(f"the call's message was not there after {self._receive_seconds:g} s") from None
        raise InvalidRequest("", "the call has no message")

    @contextlib.asynccontextmanager
    async def _typed(self, method: str, metadata: Mapping[str, str | bytes], context: Any) -> AsyncIterator[None]:
        """What the block raises leaves as a status."""
        request_id = RequestId.of(metadata)
        _request_id.set(request_id)
        try:
            yield
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            if self._cut_because is None:
                raise
            await _abort(context, Unavailable(self._cut_because))
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a typed one
            await _abort(context, told(error, request_id, method))

    @contextlib.asynccontextmanager
    async def _admitted(self, metadata: Mapping[str, str | bytes], context: Any) -> AsyncIterator[None]:
        with self._counted():
            if self._gate is not None:
                self._gate(metadata)
            async with within(self._longest_call_seconds):
                yield

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

    def _known_as_calling(self, context: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._connections is None else calling(self._connections, context)


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


def told(error: Exception, request_id: RequestId | str, what: str) -> SaguaroError:
    """What the caller is told of an error of the call `what`; of our own faults the log keeps the cause."""
    if isinstance(error, DecodeError):
        _undecodable.warning(logger, f"{what}: a message cannot be decoded; its caller is told")
        return InvalidRequest("", "the message cannot be decoded: it is not of the type that this call takes")
    if isinstance(error, SequenceFault) or not isinstance(error, SaguaroError):
        logger.error("request %s: %s failed", request_id, what, exc_info=error)
    if isinstance(error, SaguaroError):
        return error
    own = request_id.own if isinstance(request_id, RequestId) else request_id
    return SequenceFault(f"internal error; the service's log has the cause under {own}")


@contextlib.asynccontextmanager
async def _unjudged(metadata: Mapping[str, str | bytes], context: Any) -> AsyncIterator[None]:
    yield


def _behavior(handler: Any) -> Any:
    kind = (handler.request_streaming, handler.response_streaming)
    return getattr(handler, "_".join("stream" if streams else "unary" for streams in kind))


async def _abort(context: Any, error: SaguaroError) -> None:
    status = status_of(error)
    await context.abort(status.code, status.details, status.trailing_metadata)
