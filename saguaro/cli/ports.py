"""Where the services of a trio listen: their ports and hosts."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from saguaro.bindable import try_to_bind
from saguaro.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Ports:
    """The port of each service. `http` is the gateway's second one; None for a gateway without HTTP."""

    gateway: int = 50051
    verifier: int = 50061
    speculator: int = 50071
    http: int | None = 8000
    more_verifiers: tuple[int, ...] = ()

    @classmethod
    def free(cls, num_verifiers: int = 1) -> Ports:
        """Ports that nobody holds now."""
        return cls(0, 0, 0, 0, (0,) * (num_verifiers - 1)).with_free()

    def with_free(self) -> Ports:
        """These, with a port that nobody holds now in the place of every 0."""
        given = [self.gateway, self.verifier, self.speculator, self.http, *self.more_verifiers]
        free = iter(free_ports(given.count(0)))
        gateway, verifier, speculator, http, *more = (next(free) if port == 0 else port for port in given)
        assert gateway is not None
        assert verifier is not None
        assert speculator is not None
        return Ports(gateway, verifier, speculator, http, tuple(port for port in more if port is not None))

    @property
    def verifiers(self) -> dict[str, int]:
        """By the verifiers' names: "verifier", "verifier-2", "verifier-3", ..."""
        more = {f"verifier-{number}": port for number, port in enumerate(self.more_verifiers, start=2)}
        return {"verifier": self.verifier, **more}

    def of(self, name: str) -> int:
        """The port of a service by its name."""
        return {"gateway": self.gateway, "speculator": self.speculator, **self.verifiers}[name]

    def check_free(self, hosts: Hosts | None = None, *, with_speculator: bool = True) -> None:
        """Raises ConfigurationError that names the service whose port is taken, out of range, or another's too."""
        taken: dict[int, str] = {}
        for owner, host, port in self._all(hosts or Hosts()):
            if owner.startswith("the speculator") and not with_speculator:
                continue
            if port in taken:
                raise ConfigurationError(f"{taken[port]} and {owner} are both {port}; give each a port of its own")
            if port > _LAST_PORT:
                raise ConfigurationError(f"{owner} would be {port}; the last there is is {_LAST_PORT}")
            taken[port] = owner
            try:
                try_to_bind(host, port)
            except OSError as error:
                raise ConfigurationError(
                    f"{owner} {port} cannot be had on {host}: {error.strerror}; is a trio running already? "
                    "`--ports auto` takes free ports"
                ) from None

    def _all(self, hosts: Hosts) -> Iterator[tuple[str, str, int]]:
        yield "the gateway's port", hosts.gateway, self.gateway
        if self.http is not None:
            yield "the gateway's HTTP port", hosts.gateway, self.http
        for name, port in self.verifiers.items():
            yield f"the {name}'s port", hosts.verifier, port
        yield "the speculator's port", hosts.speculator, self.speculator


@dataclass(frozen=True, slots=True)
class Hosts:
    """The address that each role listens on."""

    gateway: str = LOOPBACK
    verifier: str = LOOPBACK
    speculator: str = LOOPBACK

    def of(self, name: str) -> str:
        """The host of a service by its name; all verifiers have one."""
        return {"gateway": self.gateway, "verifier": self.verifier, "speculator": self.speculator}[
            name.partition("-")[0]
        ]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody holds now; all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind((LOOPBACK, 0))
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for item in sockets:
            item.close()


def joined(host: str, port: int) -> str:
    """host:port, as URLs and gRPC write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dialled(host: str) -> str:
    """How this machine reaches what listens on `host`: a wildcard by the loopback, else by the host itself."""
    address = _address(host)
    if address is None or not address.is_unspecified:
        return host
    return LOOPBACK if address.version == 4 else "::1"


def is_wildcard(host: str) -> bool:
    """Whether what listens there is reached by every address of this machine."""
    address = _address(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
