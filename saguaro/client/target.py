"""Where a client dials, and how calls are spread over several gateways."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Sequence
from typing import Any

from saguaro.channel import channel_options
from saguaro.errors import ConfigurationError

_ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


def target_of(addresses: Sequence[str]) -> str:
    """What gRPC dials: one address (host:port, or a URI such as dns:///host:port) as it is, several in one URI.

    Names among several are looked up now. Raises ConfigurationError for what is no address.
    """
    if len(addresses) == 1:
        return addresses[0]
    if not addresses:
        raise ConfigurationError("no address of a gateway is given; give at least one host:port")
    found = [_look_up(address) for address in addresses]
    # One URI has one family.
    for version, scheme in ((4, "ipv4"), (6, "ipv6")):
        chosen = [next((item for item in items if item[0].version == version), None) for items in found]
        if None not in chosen:
            hosts = [f"[{item[0]}]:{item[1]}" if version == 6 else f"{item[0]}:{item[1]}" for item in chosen if item]
            return f"{scheme}:{','.join(hosts)}"
    raise ConfigurationError(f"{', '.join(addresses)} are partly IPv4, partly IPv6; give addresses of one kind")


def balanced_options(addresses: Sequence[str]) -> list[tuple[str, Any]]:
    """Channel options under which calls go round all addresses that answer, also those of one name.

    Over TLS, several gateways show certificates for the name of the first: they are one service. Gateways on this
    machine are dialled without the environment's proxy, which would look for them on its own.
    """
    named = [("grpc.default_authority", addresses[0])] if len(addresses) > 1 else []
    may_use_proxy = not all(map(_is_this_machine, addresses))
    return [*channel_options(may_use_proxy=may_use_proxy), ("grpc.service_config", _ROUND_ROBIN), *named]


def _is_this_machine(address: str) -> bool:
    """Whether it says so: localhost, an address of the loopback, a socket file. Names are not looked up."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition("/")[2].rpartition(":")[0].removeprefix("ipv4:").removeprefix("ipv6:").strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _look_up(address: str) -> list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f'"{address}" is no address of a gateway; give host:port')
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f'"{address}" cannot be looked up: {error}') from None
    return [(ipaddress.ip_address(place[0]), int(port)) for *_, place in found]
