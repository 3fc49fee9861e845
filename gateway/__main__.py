"""Composition root of the gateway: `python -m gateway`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from gateway.answers import Answers, check_tokenizer
from gateway.http.admin import admin_app
from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from gateway.metrics import GatewayMetrics
from gateway.policy import PolicyDesk
from gateway.policy_metrics import PolicyCollector
from gateway.service import GatewayServicer
from gateway.text import TextModel
from gateway.verifier_client import VerifierClient
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, Incompatible, Unavailable
from saguaro.model_paths import is_path, resolve_folder
from saguaro.progress import report_progress
from saguaro.server import run_service, serve
from saguaro.types import TrafficPolicy
from saguaro.v1 import gateway_pb2, gateway_pb2_grpc


async def main(settings: GatewaySettings) -> None:
    """Bind, wait for the tokenizer and the verifier, serve until a signal."""
    verifier = VerifierClient(
        settings.verifier,
        max_message_bytes=settings.max_message_bytes,
        keepalive_seconds=settings.keepalive_seconds,
    )
    desk = PolicyDesk(TrafficPolicy().changed(settings.policy.by_class()), verifier)
    metrics = GatewayMetrics()
    metrics.registry.register(PolicyCollector(desk))
    servicer = GatewayServicer(settings.request_timeout_seconds)
    door = HttpDoor(
        request_timeout_seconds=settings.request_timeout_seconds,
        max_body_bytes=settings.max_message_bytes,
        metrics=metrics.registry if settings.admin_port is None else None,
    )
    http = HttpServer(settings, door.app)
    admin = HttpServer(settings, admin_app(metrics.registry, desk, door.ready), is_admin=True)

    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        return [gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name]

    async def ready() -> None:
        await admin.start()
        await http.start()
        answers = await _open(settings, verifier, metrics)
        await desk.open()
        servicer.open(answers, desk)
        door.open(answers)

    async def drain() -> None:
        door.close("the gateway is draining")
        http.drain()

    async def stop() -> None:
        await http.stop()
        await admin.stop()  # last, so that a drain can be watched
        await verifier.close()

    await serve(settings, register, role=settings.role, ready=ready, on_drain=drain, on_stop=stop)


async def _open(settings: GatewaySettings, verifier: VerifierClient, metrics: GatewayMetrics) -> Answers:
    """What the gateway answers with.

    The verifier comes first: started at the same time, it may still convert or download the model, and once it
    serves, the folder is whole.
    """
    if is_path(settings.tokenizer):
        _tokenizer_folder(settings.tokenizer)
    report_progress(settings.role, "waiting for the verifier")
    try:
        info = await verifier.wait_until_up(settings.startup_seconds)
    except (Unavailable, Incompatible) as error:
        raise ConfigurationError(str(error)) from None
    report_progress(settings.role, "reading the tokenizer")
    text = await asyncio.to_thread(TextModel.from_folder, _tokenizer_folder(settings.tokenizer))
    check_tokenizer(text, info)
    report_progress(settings.role, "serving", 1.0)
    return Answers(text, verifier, metrics, max_concurrent=settings.max_concurrent_requests)


def _tokenizer_folder(spec: str) -> Path:
    folder = resolve_folder(spec)
    if folder is None:
        raise ConfigurationError(
            f"no folder for --tokenizer {spec} on this machine; give one with the tokenizer of the verifier's target"
        )
    return folder


if __name__ == "__main__":
    sys.exit(run_service(GatewaySettings, main))
