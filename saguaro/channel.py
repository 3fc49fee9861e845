"""How every client of a service dials: the other end of the server's keepalive policy and size limits."""

from __future__ import annotations

ChannelOptions = list[tuple[str, int]]

MAX_MESSAGE_BYTES = 16 << 20
KEEPALIVE_SECONDS = 20.0


def channel_options(
    *, max_message_bytes: int = MAX_MESSAGE_BYTES, keepalive_seconds: float = KEEPALIVE_SECONDS
) -> ChannelOptions:
    """Options for `grpc.insecure_channel` and `grpc.aio.insecure_channel`.

    `keepalive_seconds` must not be under a third of the server's own, which answers more pings by closing.
    """
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", int(keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Back after a restart within seconds, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
