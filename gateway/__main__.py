"""Composition root of the gateway: `python -m gateway`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from gateway.answers import Answers, check_tokenizer
from gateway.http.app import HttpDoor
from gateway.http.replies import Document
from gateway.http.server import HttpServer
from gateway.service import GatewayServicer
from gateway.sessions import Sessions, StoreLimits, open_store
from gateway.streams import StreamBounds, Streams
from gateway.text import TextModel
from gateway.verifiers import VerifierPool
from saguaro.answers import AnswerEvent
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, Incompatible, Unavailable
from saguaro.model_paths import is_path, resolve_folder
from saguaro.progress import report_progress
from saguaro.server import run_service, serve
from saguaro.v1 import gateway_pb2, gateway_pb2_grpc


async def main(settings: GatewaySettings) -> None:
    """Bind, wait for a verifier and the tokenizer, serve until a signal."""
    verifiers = VerifierPool(
        settings.verifier,
        max_message_bytes=settings.max_message_bytes,
        keepalive_seconds=settings.keepalive_seconds,
    )
    servicer = GatewayServicer(settings.request_timeout_seconds)
    door = HttpDoor(request_timeout_seconds=settings.request_timeout_seconds, max_body_bytes=settings.max_message_bytes)
    http = HttpServer(settings, door.app)
    store = open_store(settings.session_store, StoreLimits(settings.session_ttl_seconds, settings.max_sessions))
    bounds = StreamBounds(settings.resume_seconds, settings.max_concurrent_requests)
    events, chunks = Streams[AnswerEvent](bounds), Streams[Document](bounds)

    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        return [gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name]

    async def ready() -> None:
        await http.start()
        await verifiers.start()
        answers = await _open(settings, verifiers)
        sessions = Sessions(answers, store, max_tokens=settings.max_session_tokens)
        servicer.open(answers, sessions, events)
        door.open(answers, sessions, chunks)

    async def drain() -> None:
        door.close("the gateway is draining")
        http.drain()

    async def stop() -> None:
        await http.stop()
        await events.close()
        await chunks.close()
        await store.close()
        await verifiers.close()

    await serve(
        settings,
        register,
        role=settings.role,
        ready=ready,
        keep_ready=verifiers.keep_ready,
        on_drain=drain,
        on_stop=stop,
    )


async def _open(settings: GatewaySettings, verifiers: VerifierPool) -> Answers:
    """What the gateway answers with.

    The verifiers come first: started at the same time, they may still convert or download the model, and once one
    serves, the folder is whole.
    """
    if is_path(settings.tokenizer):
        _tokenizer_folder(settings.tokenizer)
    report_progress(settings.role, "waiting for a verifier")
    try:
        info = await verifiers.wait_until_usable(settings.startup_seconds)
    except (Unavailable, Incompatible) as error:
        raise ConfigurationError(str(error)) from None
    report_progress(settings.role, "reading the tokenizer")
    text = await asyncio.to_thread(TextModel.from_folder, _tokenizer_folder(settings.tokenizer))
    check_tokenizer(text, info)
    report_progress(settings.role, "serving", 1.0)
    return Answers(
        text,
        verifiers,
        max_concurrent=settings.max_concurrent_requests,
        patience_seconds=settings.failover_seconds,
    )


def _tokenizer_folder(spec: str) -> Path:
    folder = resolve_folder(spec)
    if folder is None:
        raise ConfigurationError(
            f"no folder for --tokenizer {spec} on this machine; give one with the tokenizer of the verifier's target"
        )
    return folder


if __name__ == "__main__":
    sys.exit(run_service(GatewaySettings, main))
