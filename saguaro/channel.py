"""How every client of a service dials: TLS, and the other end of the server's keepalive policy and size limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from saguaro.errors import ConfigurationError

ChannelOptions = list[tuple[str, int]]

MAX_MESSAGE_BYTES = 16 << 20
KEEPALIVE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files to dial with: `ca` has the authorities to trust, None for the public ones that gRPC ships.

    `client_cert` (a chain) and `client_key` are shown to a server that asks for them (mTLS).
    """

    ca: str | Path | None = None
    client_cert: str | Path | None = None
    client_key: str | Path | None = None

    def credentials(self) -> Any:
        """`grpc.ChannelCredentials`, the files read now. Raises ConfigurationError where one cannot be."""
        if (self.client_cert is None) != (self.client_key is None):
            raise ConfigurationError(
                f"the client certificate is {self.client_cert}, its key {self.client_key}; give both or neither"
            )
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.client_key), _read(self.client_cert))


def channel_options(
    *,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    keepalive_seconds: float = KEEPALIVE_SECONDS,
    may_use_proxy: bool = False,
) -> ChannelOptions:
    """Options for `open_channel` and `open_aio_channel`.

    `keepalive_seconds` must not be under a third of the server's own, which answers more pings by closing.
    `may_use_proxy`: whether `grpc_proxy`, `https_proxy` and `http_proxy` of the environment count, less what `no_proxy`
    names. They speak of the way out: services dial each other directly, whatever the environment says.
    """
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", int(keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Back after a restart within seconds, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.enable_http_proxy", int(may_use_proxy)),
    ]


def open_channel(address: str, tls: Tls | None, options: ChannelOptions) -> Any:
    """A `grpc.Channel`; plain text where `tls` is None."""
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, tls.credentials(), options=options)


def open_aio_channel(address: str, tls: Tls | None, options: ChannelOptions) -> Any:
    """A `grpc.aio.Channel`; plain text where `tls` is None."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, tls.credentials(), options=options)


def dialled_at(address: str, tls: Tls | None) -> str:
    """The address as errors name it: where TLS fails, the usual reason is that one side has none."""
    return address if tls is None else f"{address} (dialled over TLS)"


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
