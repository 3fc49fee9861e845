"""The routes: a body becomes a request of `gateway.answers`, its events a document or a stream of them."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.answers import Answers
from gateway.http.admin import metrics_endpoint
from gateway.http.bodies import ChatBody, CompletionBody
from gateway.http.errors import HttpError, error_document, error_response, malformed
from gateway.http.openapi import openapi_document
from gateway.http.replies import Document, Reply
from gateway.http.shapes import ChatShape, CompletionShape, Shape, Speller
from gateway.http.transfer import ClientGone, EventStream, read_json, sse, while_connected
from saguaro.answers import ServedModel
from saguaro.errors import SaguaroError, SequenceFault, Unavailable
from saguaro.validation import validate_model

logger = logging.getLogger(__name__)

Body = TypeVar("Body", ChatBody, CompletionBody)
Endpoint = Callable[[Request], Awaitable[Response]]

_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_NOBODY_READS_IT = 499  # nginx's number for a client that has gone


class HttpDoor:
    """The ASGI application and whether it is open; requests are counted against the same bounds as gRPC's."""

    def __init__(
        self, *, request_timeout_seconds: float, max_body_bytes: int, metrics: CollectorRegistry | None = None
    ) -> None:
        """`metrics` where they are not apart, on the admin port."""
        self._request_timeout_seconds = request_timeout_seconds
        self._max_body_bytes = max_body_bytes
        self._answers: Answers | None = None
        self._closed_because = "the gateway is starting"
        routes = [
            Route("/livez", _live),
            Route("/readyz", self.ready),
            Route("/openapi.json", _openapi),
            Route("/v1/models", _guarded(self._models, {})),
            Route("/v1/models/{name:path}", _guarded(self._model, {})),
            Route("/v1/chat/completions", _guarded(self._chat, ChatBody.params), methods=["POST"]),
            Route("/v1/completions", _guarded(self._complete, CompletionBody.params), methods=["POST"]),
        ]
        if metrics is not None:
            routes.append(Route("/metrics", metrics_endpoint(metrics)))
        self.app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})

    def open(self, answers: Answers) -> None:
        """Answer from now on."""
        self._answers = answers

    def close(self, because: str) -> None:
        """Refuse new requests with `because`; running ones go on."""
        self._answers, self._closed_because = None, because

    async def ready(self, request: Request) -> Response:
        """200 while requests are taken."""
        if self._answers is None:
            return PlainTextResponse(self._closed_because, 503)
        if self._answers.is_full:
            return PlainTextResponse(f"{self._answers.num_running} answers are in flight, no more fit", 503)
        return PlainTextResponse("ready")

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model_card(await self._open_answers().served_model())]})

    async def _model(self, request: Request) -> Response:
        served = await self._open_answers().served_model()
        validate_model(request.path_params["name"], served.model)
        return JSONResponse(_model_card(served))

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, await self._body(request, ChatBody), ChatShape)

    async def _complete(self, request: Request) -> Response:
        return await self._generate(request, await self._body(request, CompletionBody), CompletionShape)

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        raw = await read_json(request, max_bytes=self._max_body_bytes, timeout_seconds=self._request_timeout_seconds)
        try:
            return kind.model_validate_json(raw)
        except ValidationError as error:
            raise malformed(error) from None

    async def _generate(
        self, request: Request, body: ChatBody | CompletionBody, shape: Callable[[Speller], Shape]
    ) -> Response:
        answers, request_id = self._open_answers(), _request_id(request)
        asked = body.answer_request()
        reply = Reply(shape(answers.token_bytes), request_id, asked.n, wants_usage=body.wants_usage)
        events = answers.generate(asked, request_id, self._request_timeout_seconds)
        headers = {"x-request-id": request_id}
        if not body.streams:
            return JSONResponse(await while_connected(request.receive, reply.whole(events)), headers=headers)
        chunks = reply.chunks(events)
        # What is refused at once has a status of its own.
        first = await while_connected(request.receive, anext(chunks))
        return EventStream(_stream(first, chunks, body.params, request_id), headers)

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
            return error_response(error, {}, _request_id(request))
        except Exception as error:  # noqa: BLE001  # each becomes an answer
            request_id = _request_id(request)
            return error_response(_typed(error, request_id), params, request_id)

    return answer


async def _stream(
    first: Document, chunks: AsyncGenerator[Document], params: dict[str, str], request_id: str
) -> AsyncGenerator[bytes]:
    """Events up to [DONE], or up to an error, which ends the stream without it."""
    try:
        async with contextlib.aclosing(chunks):
            yield sse(first)
            async for chunk in chunks:
                yield sse(chunk)
            yield b"data: [DONE]\n\n"
    except Exception as error:  # noqa: BLE001  # the status is out; the client learns of it from the stream
        yield sse(error_document(_typed(error, request_id), params))


def _typed(error: Exception, request_id: str) -> SaguaroError:
    """The error as its caller may see it; what is our fault is logged with its traceback."""
    if isinstance(error, SaguaroError) and not isinstance(error, SequenceFault):
        return error
    logger.error("request %s failed", request_id, exc_info=error)
    if isinstance(error, SequenceFault):
        return error
    return SequenceFault(f"internal error; the gateway's log has the cause under {request_id}")


def _request_id(request: Request) -> str:
    """The caller's, where it can travel on as it is, else a random one; the same for one request."""
    given = request.headers.get("x-request-id", "")
    if not hasattr(request.state, "request_id"):
        request.state.request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    return str(request.state.request_id)


def _model_card(served: ServedModel) -> Document:
    return {
        "id": served.model.name,
        "object": "model",
        "created": 0,  # nobody knows when a folder of weights was made
        "owned_by": "saguaro",
        "max_model_len": served.model.context_limit_tokens,
    }


async def _live(request: Request) -> Response:
    return PlainTextResponse("alive")


async def _openapi(request: Request) -> Response:
    return JSONResponse(openapi_document())


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return error_response(HttpError(error.status_code, message), {}, _request_id(request))
