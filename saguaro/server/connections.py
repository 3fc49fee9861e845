"""Who is connected to a port and asks nothing: such connections make room for new ones, the quietest first.

Connections that have a call, admitted by the door, are never closed for others: a stranger that opens hundreds closes
its own. Descriptors are left for what a service opens itself (its peers, its files): see `connection_limit`.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from saguaro.config import ServiceSettings
from saguaro.errors import ConfigurationError

FD_FOLDER = "/proc/self/fd"
_LEAST_RESERVED, _RESERVED_SHARE = 64, 8  # descriptors for the service itself: that many, or that part of all
_FEWEST = 4
_UNLIMITED = 1 << 20

Peer = tuple[str, int]  # address and port


def peer_of(host: str, port: int) -> Peer:
    """IPv4 over an IPv6 socket is IPv4."""
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(host.partition("%")[0])
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return str(mapped or parsed), port
    return host, port


def connection_limit(settings: ServiceSettings, num_ports: int) -> int:
    """Connections that each of so many ports may have.

    Raises ConfigurationError where the setting wants more than the process may open, or that is next to nothing.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = min(soft, _UNLIMITED) if soft != resource.RLIM_INFINITY else _UNLIMITED
    room = (files - _num_own() - max(_LEAST_RESERVED, files // _RESERVED_SHARE)) // num_ports
    wanted = settings.max_connections
    if room < max(wanted or 0, _FEWEST):
        said = "" if wanted is None else f"max_connections is {wanted}; "
        raise ConfigurationError(
            f"{said}the {settings.role} may open {files} files, which leaves room for {max(room, 0)} connections to "
            f"each of {num_ports} ports; raise the limit (ulimit -n) or lower --max-connections"
        )
    return room if wanted is None else wanted


@functools.cache
def _num_own() -> int:
    """Descriptors of the service itself: those of its start, since later ones may be strangers'."""
    return num_descriptors()


def num_descriptors() -> int:
    """Open files of this process; 0 where the system does not say."""
    try:
        return len(os.listdir(FD_FOLDER))
    except OSError:
        return 0


@dataclass(slots=True, eq=False)
class _Connection:
    close: Callable[[], None]
    quiet_since: float
    deadline: float | None = None  # until a call begins
    num_calls: int = 0


class Connections:
    """The open connections of one port. `per_address` None: as many as `limit`. All times are of `clock`, seconds."""

    def __init__(self, limit: int, per_address: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.per_address = min(per_address or limit, limit)
        self._clock = clock
        self._open: dict[Peer, _Connection] = {}
        self._quiet: OrderedDict[Peer, None] = OrderedDict()  # those without a call, the quietest first
        self._num_from: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._open

    @property
    def peers(self) -> list[Peer]:
        """Of all connections."""
        return list(self._open)

    def opened(self, peer: Peer, close: Callable[[], None], within_seconds: float | None = None) -> None:
        """A new connection, which has so long to begin a call; of a known one, another way to close it.

        `close` must not raise.
        """
        if (known := self._open.get(peer)) is not None:
            known.close = close
            return
        now = self._clock()
        self._open[peer] = _Connection(close, now, None if within_seconds is None else now + within_seconds)
        self._quiet[peer] = None
        self._num_from[peer[0]] += 1

    def closed(self, peer: Peer) -> None:
        """It is gone; harmless for one that is unknown."""
        if self._open.pop(peer, None) is not None:
            self._quiet.pop(peer, None)
            self._num_from[peer[0]] -= 1
            if not self._num_from[peer[0]]:
                del self._num_from[peer[0]]

    def extend(self, peer: Peer, within_seconds: float) -> None:
        """So long from now to begin a call."""
        if (connection := self._open.get(peer)) is not None and not connection.num_calls:
            connection.deadline = self._clock() + within_seconds

    def call_began(self, peer: Peer) -> None:
        """It is not quiet any more."""
        if (connection := self._open.get(peer)) is not None:
            connection.num_calls += 1
            self._quiet.pop(peer, None)

    def call_ended(self, peer: Peer, idle_seconds: float | None = None, *, counts: bool = True) -> None:
        """It is quiet from now on, for at most `idle_seconds`; a call that does not count leaves it as quiet as before,
        which puts it first among those to be closed.
        """
        connection = self._open.get(peer)
        if connection is None or not connection.num_calls:
            return
        connection.num_calls -= 1
        if counts:
            connection.quiet_since = self._clock()
            connection.deadline = None if idle_seconds is None else connection.quiet_since + idle_seconds
        if not connection.num_calls:
            self._quiet[peer] = None
            self._quiet.move_to_end(peer, last=counts)

    @contextlib.contextmanager
    def calling(self, peer: Peer) -> Iterator[None]:
        """While the connection has a call."""
        self.call_began(peer)
        try:
            yield
        finally:
            self.call_ended(peer)

    def make_room(self, address: str) -> bool:
        """Whether one more connection from `address` fits, where need be in place of the quietest."""
        if self._num_from[address] >= self.per_address:
            return self._close_first(peer for peer in self._quiet if peer[0] == address)
        return len(self._open) < self.limit or self._close_first(iter(self._quiet))

    def shed(self, keep: int) -> None:
        """Close the quietest until `keep` are left, and of each address as many as it may have."""
        for address in [name for name, count in self._num_from.items() if count > self.per_address]:
            while self._num_from[address] > self.per_address:
                if not self._close_first(peer for peer in self._quiet if peer[0] == address):
                    break
        while len(self._open) > keep and self._close_first(iter(self._quiet)):
            pass

    def close_overdue(self) -> None:
        """Close those whose time to begin a call is over."""
        now = self._clock()
        for peer in list(self._quiet):
            deadline = self._open[peer].deadline
            if deadline is not None and deadline <= now:
                self._close(peer)

    def _close_first(self, peers: Iterator[Peer]) -> bool:
        peer = next(peers, None)
        if peer is not None:
            self._close(peer)
        return peer is not None

    def _close(self, peer: Peer) -> None:
        close = self._open[peer].close
        self.closed(peer)
        close()
