"""From what `--verifier` says to the addresses of single verifiers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable

from saguaro.errors import ConfigurationError

logger = logging.getLogger(__name__)

_BY_NAME = "dns:///"


def parse_addresses(text: str) -> tuple[str, ...]:
    """The parts of a list with commas, each host:port or dns:///name:port. Raises ConfigurationError."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        host, colon, port = part.removeprefix(_BY_NAME).rpartition(":")
        if not (host and colon and port.isdecimal()):
            raise ConfigurationError(
                f'--verifier "{text}" has "{part}"; write host:port or dns:///name:port, several with commas between'
            )
    return parts


def are_fixed(parts: Iterable[str]) -> bool:
    """Whether no name among them may stand for other verifiers later."""
    return not any(part.startswith(_BY_NAME) for part in parts)


async def resolve(parts: Iterable[str]) -> set[str]:
    """Every address now, names replaced by all that they stand for; a name that cannot be looked up stands for none."""
    found: set[str] = set()
    for part in parts:
        if not part.startswith(_BY_NAME):
            found.add(part)
            continue
        host, _, port = part.removeprefix(_BY_NAME).rpartition(":")
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            logger.warning("%s cannot be looked up: %s", part, error)
            continue
        found |= {f"[{where[0]}]:{port}" if ":" in str(where[0]) else f"{where[0]}:{port}" for *_, where in answers}
    return found
