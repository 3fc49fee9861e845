"""Composition root of the gateway: `python -m gateway`."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Any

from gateway.answers import Answers, check_tokenizer
from gateway.service import GatewayServicer
from gateway.text import TextModel
from gateway.verifier_client import VerifierClient
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, Incompatible, Unavailable
from saguaro.model_paths import is_path, resolve_folder
from saguaro.progress import report_progress
from saguaro.server import run_service, serve
from saguaro.v1 import gateway_pb2, gateway_pb2_grpc

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.2


async def main(settings: GatewaySettings) -> None:
    """Bind, wait for the tokenizer and the verifier, serve until a signal."""
    verifier = VerifierClient(
        settings.verifier,
        max_message_bytes=settings.max_message_bytes,
        keepalive_seconds=settings.keepalive_seconds,
    )
    servicer = GatewayServicer(settings.request_timeout_seconds)

    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        return [gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name]

    async def ready() -> None:
        servicer.open(await _open(settings, verifier))

    await serve(settings, register, role=settings.role, ready=ready, on_stop=verifier.close)


async def _open(settings: GatewaySettings, verifier: VerifierClient) -> Answers:
    deadline = time.monotonic() + settings.startup_seconds
    folder = await _tokenizer_folder(settings.tokenizer, deadline)
    report_progress(settings.role, "reading the tokenizer")
    text = await asyncio.to_thread(TextModel.from_folder, folder)
    report_progress(settings.role, "waiting for the verifier")
    try:
        info = await verifier.wait_until_up(deadline - time.monotonic())
    except (Unavailable, Incompatible) as error:
        raise ConfigurationError(str(error)) from None
    check_tokenizer(text, info)
    report_progress(settings.role, "serving", 1.0)
    return Answers(text, verifier, max_concurrent=settings.max_concurrent_requests)


async def _tokenizer_folder(spec: str, deadline: float) -> Path:
    """The model's folder; waits where the verifier, started at the same time, may still convert or download it."""
    folder = resolve_folder(spec)
    if folder is None and not is_path(spec):
        logger.info("waiting for the verifier to make the folder of %s", spec)
        report_progress("gateway", f"waiting for {spec}")
    while folder is None:
        if is_path(spec) or time.monotonic() >= deadline:
            raise ConfigurationError(
                f"--tokenizer {spec}: no such folder; give demo-target, a model's folder, or a hub id in the cache"
            )
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        folder = resolve_folder(spec)
    return folder


if __name__ == "__main__":
    sys.exit(run_service(GatewaySettings, main))
