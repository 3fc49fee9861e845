"""Composition root of the gateway: `python -m gateway`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gateway.answers import Answers, check_tokenizer
from gateway.guard import Guard, KeysFile, is_loopback, longest_call_seconds
from gateway.http.admin import admin_app
from gateway.http.app import HttpDoor
from gateway.http.server import HttpServer
from gateway.metrics import GatewayMetrics
from gateway.policy import PolicyDesk
from gateway.policy_metrics import PolicyCollector
from gateway.requests import Limits
from gateway.service import GatewayServicer, event_bytes
from gateway.sessions import Sessions, StoreLimits, open_store
from gateway.streams import StreamBounds, Streams
from gateway.text import TextModel
from gateway.text_workers import TextWorkers
from gateway.verifiers import VerifierPool
from saguaro.config import GatewaySettings
from saguaro.errors import ConfigurationError, Incompatible, Unavailable
from saguaro.model_paths import is_path, resolve_folder
from saguaro.progress import report_progress
from saguaro.server import dial_tls, run_service, serve, side_by_side
from saguaro.types import TrafficPolicy
from saguaro.v1 import gateway_pb2, gateway_pb2_grpc

logger = logging.getLogger(__name__)


async def main(settings: GatewaySettings) -> None:
    """Bind, wait for a verifier and the tokenizer, serve until a signal."""
    verifiers = VerifierPool(
        settings.verifier,
        max_message_bytes=settings.max_message_bytes,
        keepalive_seconds=settings.keepalive_seconds,
        tls=dial_tls(settings),
    )
    desk = PolicyDesk(TrafficPolicy().changed(settings.policy.by_class()), verifiers)
    metrics = GatewayMetrics()
    metrics.registry.register(PolicyCollector(desk))
    guard = Guard()
    servicer = GatewayServicer(settings.request_timeout_seconds)
    door = HttpDoor(
        request_timeout_seconds=settings.request_timeout_seconds,
        max_body_bytes=settings.max_body_bytes,
        receive_seconds=settings.receive_seconds,
        guard=guard,
        metrics=metrics.registry if settings.admin_port is None else None,
    )
    http = HttpServer(settings, door.app, cut=door.cut)
    admin = HttpServer(settings, admin_app(metrics.registry, desk, door.ready), is_admin=True)
    store = open_store(settings.session_store, _store_limits(settings))
    bounds = StreamBounds(
        settings.resume_seconds,
        settings.max_concurrent_requests,
        max_buffered_bytes=settings.resume_buffer_bytes,
        max_streams_per_key=settings.max_resumable_per_key,
    )
    events, chunks = Streams[gateway_pb2.GenerateResponse](bounds, event_bytes), Streams[bytes](bounds, len)

    def register(server: Any) -> list[str]:
        gateway_pb2_grpc.add_GatewayServiceServicer_to_server(servicer, server)
        return [gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name]

    async def ready() -> None:
        await admin.start()
        await http.start()
        await desk.open()
        await verifiers.start()
        answers = await _open(settings, owned, verifiers, metrics)
        sessions = Sessions(answers, store, max_tokens=settings.max_session_tokens)
        servicer.open(answers, sessions, events, desk)
        door.open(answers, sessions, chunks)

    async def keep_ready(say_ready: Callable[[bool], Awaitable[None]]) -> None:
        await side_by_side(verifiers.keep_ready(say_ready), http.watch(), admin.watch())

    async def drain() -> None:
        door.close("the gateway is draining")
        http.drain()

    async def stop() -> None:
        await http.stop()
        await events.close()
        await chunks.close()
        await store.close()
        await admin.stop()  # late, so that a drain can be watched
        await verifiers.close()

    async with _keys(settings, guard), contextlib.AsyncExitStack() as owned:
        await serve(
            settings,
            register,
            role=settings.role,
            gate=guard.enter_by_metadata,
            longest_call_seconds=longest_call_seconds(settings.request_timeout_seconds),
            num_ports=1 if settings.http_port is None else 2,
            ready=ready,
            keep_ready=keep_ready,
            on_drain=drain,
            on_stop=stop,
        )


def _store_limits(settings: GatewaySettings) -> StoreLimits:
    return StoreLimits(
        settings.session_ttl_seconds,
        settings.max_sessions,
        max_sessions_per_owner=settings.max_sessions_per_key,
        max_bytes_per_owner=settings.max_session_bytes_per_key,
    )


def _keys(settings: GatewaySettings, guard: Guard) -> contextlib.AbstractAsyncContextManager[None]:
    if settings.keys_file is not None:
        return KeysFile(settings.keys_file, guard).watched()
    if not is_loopback(settings.host):
        logger.warning("no --keys-file: whoever reaches %s may use this gateway", settings.host)
    return contextlib.nullcontext()


async def _open(
    settings: GatewaySettings, owned: contextlib.AsyncExitStack, verifiers: VerifierPool, metrics: GatewayMetrics
) -> Answers:
    """What the gateway answers with; its processes end with `owned`.

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
    folder = _tokenizer_folder(settings.tokenizer)
    # They come first: what a template does to them at its first use it cannot do to this process.
    workers = TextWorkers(folder, num_workers=settings.text_workers, max_seconds=settings.text_seconds)
    owned.push_async_callback(workers.close)
    await workers.start()
    text = await asyncio.to_thread(_read, folder)
    check_tokenizer(text, info)
    report_progress(settings.role, "serving", 1.0)
    limits = Limits(
        max_concurrent=settings.max_concurrent_requests,
        max_prompt_tokens=settings.max_prompt_tokens,
        max_answer_tokens=settings.max_answer_tokens,
    )
    return Answers(
        text,
        workers,
        verifiers,
        limits,
        metrics,
        patience_seconds=settings.failover_seconds,
        log_prompts=settings.log_prompts,
    )


def _read(folder: Path) -> TextModel:
    text = TextModel.from_folder(folder)
    _ = text.longest_token_bytes  # which takes a while to find out
    return text


def _tokenizer_folder(spec: str) -> Path:
    folder = resolve_folder(spec)
    if folder is None:
        raise ConfigurationError(
            f"no folder for --tokenizer {spec} on this machine; give one with the tokenizer of the verifier's target"
        )
    return folder


if __name__ == "__main__":
    sys.exit(run_service(GatewaySettings, main))
