"""Whether an address can be listened on, and if not, why: gRPC says only that it failed."""

from __future__ import annotations

import socket


def try_to_bind(host: str, port: int) -> None:
    """Bind a plain socket to the address and let it go. Raises OSError, whose words say what is wrong."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
