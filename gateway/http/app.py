"""The routes: a body becomes a request of `gateway.answers`, its events a document or a stream of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.answers import Answers
from gateway.guard import Guard, current_principal, longest_call_seconds
from gateway.http.admin import metrics_endpoint
from gateway.http.bodies import ChatBody, CompletionBody
from gateway.http.errors import HttpError, error_document, error_response, id_headers
from gateway.http.identity import Entrance, request_id_of
from gateway.http.listing import Vocabulary
from gateway.http.openapi import openapi_document
from gateway.http.replies import Document, Reply
from gateway.http.sessions import SessionBody, deletion, session_document
from gateway.http.shapes import ChatShape, CompletionShape, Shape
from gateway.http.strict import parse
from gateway.http.transfer import ClientGone, EventStream, encoded, read_json, sse, while_connected
from gateway.sessions import Sessions
from gateway.streams import Numbered, Streams, numbered
from gateway.verifiers import VerifierPool
from saguaro.answers import ServedModel
from saguaro.errors import InvalidRequest, SaguaroError, SequenceFault, Unavailable
from saguaro.server import RequestId
from saguaro.validation import validate_model

logger = logging.getLogger(__name__)

Body = TypeVar("Body", ChatBody, CompletionBody, SessionBody)
Endpoint = Callable[[Request], Awaitable[Response]]

_RECEIVE_SECONDS = 20.0
_LAST_EVENT_ID = "last-event-id"
_RESUMED = {"after_sequence_number": _LAST_EVENT_ID}
_QUICK_BYTES = 1 << 16
_NOBODY_READS_IT = 499  # nginx's number for a client that has gone


class HttpDoor:
    """The ASGI application and whether it is open; requests are counted against the same bounds as gRPC's."""

    _sessions: Sessions
    _streams: Streams[bytes]

    def __init__(
        self,
        *,
        request_timeout_seconds: float,
        max_body_bytes: int,
        receive_seconds: float = _RECEIVE_SECONDS,
        guard: Guard | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        """A body has `receive_seconds` to arrive. `metrics` where they are not apart, on the admin port."""
        self._request_timeout_seconds = request_timeout_seconds
        self._max_body_bytes = max_body_bytes
        self._receive_seconds = receive_seconds
        self._answers: Answers | None = None
        self._closed_because = "the gateway is starting"
        routes = [
            Route("/livez", _live),
            Route("/readyz", self._public_ready),
            Route("/openapi.json", _openapi),
            Route("/v1/models", _guarded(self._models, {})),
            Route("/v1/models/{name:path}", _guarded(self._model, {})),
            Route("/v1/chat/completions", _guarded(self._chat, ChatBody.params), methods=["POST"]),
            Route("/v1/completions", _guarded(self._complete, CompletionBody.params), methods=["POST"]),
            Route("/v1/sessions", _guarded(self._create_session, {}), methods=["POST"]),
            Route("/v1/sessions/{session_id}", _guarded(self._session, {})),
            Route("/v1/sessions/{session_id}", _guarded(self._delete_session, {}), methods=["DELETE"]),
            Route("/v1/streams/{request_id:path}", _guarded(self._resume_stream, _RESUMED)),
            Route("/v1/streams/{request_id:path}", _guarded(self._cancel_stream, {}), methods=["DELETE"]),
        ]
        if metrics is not None:
            routes.append(Route("/metrics", metrics_endpoint(metrics)))
        self.app = Entrance(
            Starlette(routes=routes, exception_handlers={HTTPException: _no_route}),
            guard or Guard(),
            longest_call_seconds=longest_call_seconds(request_timeout_seconds),
        )

    def open(self, answers: Answers, sessions: Sessions, streams: Streams[bytes]) -> None:
        """Answer from now on."""
        self._answers, self._sessions, self._streams = answers, sessions, streams

    def close(self, because: str) -> None:
        """Refuse new requests with `because`; running ones go on."""
        self._answers, self._closed_because = None, because

    def cut(self, because: str) -> None:
        """End what still runs with `because`."""
        self.app.cut(because)

    async def ready(self, request: Request) -> Response:
        """200 while requests are taken. For the admin port: it names the verifiers that are not used, and says why."""
        return self._readiness(lambda verifiers: verifiers.complaints)

    async def _public_ready(self, request: Request) -> Response:
        return self._readiness(_counted)

    def _readiness(self, describe: Callable[[VerifierPool], str]) -> Response:
        if self._answers is None:
            return PlainTextResponse(self._closed_because, 503)
        if self._answers.is_full:
            return PlainTextResponse(f"{self._answers.num_running} answers are in flight, no more fit", 503)
        verifiers = self._answers.verifiers
        if not verifiers.usable:
            return PlainTextResponse(f"not ready: {describe(verifiers)}", 503)
        return PlainTextResponse(f"ready, but {describe(verifiers)}" if verifiers.complaints else "ready")

    async def _models(self, request: Request) -> Response:
        models = await self._open_answers().served_models()
        return JSONResponse({"object": "list", "data": [_model_card(served) for served in models]})

    async def _model(self, request: Request) -> Response:
        served = await self._open_answers().served_model()
        validate_model(request.path_params["name"], served.model)
        current_principal().check_model(served.model.name)
        return JSONResponse(_model_card(served))

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, await self._body(request, ChatBody), ChatShape)

    async def _complete(self, request: Request) -> Response:
        return await self._generate(request, await self._body(request, CompletionBody), CompletionShape)

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        raw = await read_json(request, max_bytes=self._max_body_bytes, timeout_seconds=self._receive_seconds)
        # A large body takes longer than a step; other streams go on meanwhile.
        return parse(kind, raw) if len(raw) <= _QUICK_BYTES else await asyncio.to_thread(parse, kind, raw)

    async def _generate(
        self, request: Request, body: ChatBody | CompletionBody, shape: Callable[[Vocabulary], Shape]
    ) -> Response:
        answers, request_id = self._open_answers(), request_id_of(request)
        asked = body.answer_request(answers.limits.max_answer_tokens)
        reply = Reply(shape(answers.text), request_id.own, asked.n, wants_usage=body.wants_usage)
        timeout_seconds = min(body.timeout or math.inf, self._request_timeout_seconds)
        events = self._sessions.generate(asked, request_id.own, timeout_seconds)
        if not body.streams:
            whole = await while_connected(request.receive, reply.whole(events))
            return JSONResponse(whole, headers=id_headers(request_id))
        chunks = _encoded(reply.chunks(events))
        stream = self._streams.keep(request_id.own, chunks) if asked.resumable else numbered(chunks)
        return await self._stream(request, stream, body.params, request_id, with_ids=asked.resumable)

    async def _stream(
        self,
        request: Request,
        stream: AsyncGenerator[Numbered[bytes]],
        params: dict[str, str],
        request_id: RequestId,
        *,
        with_ids: bool,
    ) -> Response:
        # What is refused at once has a status of its own.
        first = await while_connected(request.receive, anext(stream, None))
        events = _sse_events(first, stream, params, request_id, with_ids=with_ids)
        return EventStream(events, id_headers(request_id))

    async def _resume_stream(self, request: Request) -> Response:
        self._open_answers()
        last = request.headers.get(_LAST_EVENT_ID, "0")
        if not (last.isascii() and last.isdecimal() and len(last) <= 19):
            raise InvalidRequest(_LAST_EVENT_ID, f'Last-Event-ID is "{last[:40]}"; it must be the id of an event')
        stream_id = request.path_params["request_id"]
        stream = self._streams.resume(stream_id, int(last))
        # The id of the stream: a client that is cut off once more finds it where it found it the first time.
        named = RequestId(stream_id, request_id_of(request).callers)
        return await self._stream(request, stream, _RESUMED, named, with_ids=True)

    async def _cancel_stream(self, request: Request) -> Response:
        self._open_answers()
        await self._streams.cancel(request.path_params["request_id"])
        return JSONResponse(deletion("stream", request.path_params["request_id"]))

    async def _create_session(self, request: Request) -> Response:
        self._open_answers()
        body = await self._body(request, SessionBody)
        messages = tuple(message.message(index) for index, message in enumerate(body.messages or ()))
        return JSONResponse(session_document(await self._sessions.create(body.model or "", messages)))

    async def _session(self, request: Request) -> Response:
        self._open_answers()
        return JSONResponse(session_document(await self._sessions.get(request.path_params["session_id"])))

    async def _delete_session(self, request: Request) -> Response:
        self._open_answers()
        await self._sessions.delete(request.path_params["session_id"])
        return JSONResponse(deletion("session", request.path_params["session_id"]))

    def _open_answers(self) -> Answers:
        if self._answers is None:
            raise Unavailable(self._closed_because)
        return self._answers


def _guarded(endpoint: Endpoint, params: dict[str, str]) -> Endpoint:
    """The endpoint, what it raises turned into OpenAI's errors. `params`: see `errors.error_document`."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=_NOBODY_READS_IT)
        except HttpError as error:
            return error_response(error, {}, request_id_of(request))
        except Exception as error:  # noqa: BLE001  # each becomes an answer
            request_id = request_id_of(request)
            return error_response(_typed(error, request_id), params, request_id)

    return answer


async def _sse_events(
    first: Numbered[bytes] | None,
    stream: AsyncGenerator[Numbered[bytes]],
    params: dict[str, str],
    request_id: RequestId,
    *,
    with_ids: bool,
) -> AsyncGenerator[bytes]:
    """Events up to [DONE], or up to an error, which ends the stream without it. No `first`: all had been read."""
    try:
        async with contextlib.aclosing(stream):
            if first is not None:
                yield sse(first.item, first.sequence_number if with_ids else None)
            async for chunk in stream:
                yield sse(chunk.item, chunk.sequence_number if with_ids else None)
            yield b"data: [DONE]\n\n"
    except Exception as error:  # noqa: BLE001  # the status is out; the client learns of it from the stream
        yield sse(encoded(error_document(_typed(error, request_id), params)))


async def _encoded(documents: AsyncGenerator[Document]) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(documents):
        async for document in documents:
            yield encoded(document)


def _typed(error: Exception, request_id: RequestId) -> SaguaroError:
    """The error as its caller may see it; what is our fault is logged with its traceback."""
    if isinstance(error, SaguaroError) and not isinstance(error, SequenceFault):
        return error
    logger.error("request %s failed", request_id, exc_info=error)
    if isinstance(error, SequenceFault):
        return error
    return SequenceFault(f"internal error; the gateway's log has the cause under {request_id.own}")


def _model_card(served: ServedModel) -> Document:
    return {
        "id": served.model.name,
        "object": "model",
        "created": 0,  # nobody knows when a folder of weights was made
        "owned_by": "saguaro",
        "max_model_len": served.model.context_limit_tokens,
    }


def _counted(verifiers: VerifierPool) -> str:
    """For whoever asks: addresses are the deployment's own affair."""
    failing = sum(bool(member.complaint) for member in verifiers.usable)
    also = f", {failing} of which failed their last requests" if failing else ""
    return f"{len(verifiers.usable)} of {len(verifiers.members)} verifiers can be used{also}"


async def _live(request: Request) -> Response:
    return PlainTextResponse("alive")


async def _openapi(request: Request) -> Response:
    return JSONResponse(openapi_document())


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return error_response(HttpError(error.status_code, message), {}, request_id_of(request))
