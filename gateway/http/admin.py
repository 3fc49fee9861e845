"""The admin port: metrics, the policy, and probes, apart from what clients reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.http.errors import HttpError, error_response, malformed
from gateway.http.transfer import read_json
from gateway.policy import PolicyDesk
from saguaro.config import PolicySettings, policy_report_document
from saguaro.errors import InvalidRequest

Endpoint = Callable[[Request], Awaitable[Response]]

_MAX_BODY_BYTES = 1 << 16
_BODY_SECONDS = 10.0


def admin_app(registry: CollectorRegistry, desk: PolicyDesk, ready: Endpoint) -> Starlette:
    """The ASGI application; `ready` is the public door's own answer."""

    async def policy(request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse(policy_report_document(desk.report))
        try:
            raw = await read_json(request, max_bytes=_MAX_BODY_BYTES, timeout_seconds=_BODY_SECONDS)
            changes = PolicySettings.model_validate_json(raw).by_class()
            return JSONResponse(policy_report_document(await desk.change(changes)))
        except ValidationError as error:
            return error_response(malformed(error), {}, None)
        except (InvalidRequest, HttpError) as error:
            return error_response(error, {}, None)

    return Starlette(
        routes=[
            Route("/livez", _live),
            Route("/readyz", ready),
            Route("/metrics", metrics_endpoint(registry)),
            Route("/admin/policy", policy, methods=["GET", "PUT"]),
        ]
    )


def metrics_endpoint(registry: CollectorRegistry) -> Endpoint:
    """The registry in the format that the scraper asks for."""

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return metrics


async def _live(request: Request) -> Response:
    return PlainTextResponse("alive")
