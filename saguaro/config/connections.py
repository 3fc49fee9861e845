"""Settings of whoever connects to a service's ports: how many, and how long without asking anything."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings


class ConnectionSettings(BaseSettings):
    """Bounds on connections of each port, the gRPC and the HTTP one alike."""

    max_connections: Annotated[
        int | None,
        Field(
            ge=4,
            le=1 << 20,
            description="connections to each port; beyond it the one that has been quiet for longest is closed, and "
            "where all have calls the new one; default: what the process's limit of open files (ulimit -n) leaves room "
            "for beside its own",
        ),
    ] = None
    max_connections_per_address: Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 20,
            description="connections from one address to each port; smaller keeps one client from taking all, but a "
            "proxy or a NAT is one address; default: as many as max_connections",
        ),
    ] = None
    max_concurrent_streams: Annotated[
        int,
        Field(
            ge=1,
            le=1 << 20,
            description="gRPC calls that one connection may have at the same time; further ones wait at the client",
        ),
    ] = 4096
    receive_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="longest time for a connection's handshake, a request's header, and then its body or message; "
            "shorter frees descriptors sooner, longer forgives slow uploads",
        ),
    ] = 20.0
    idle_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            description="time after which a connection without calls is closed; longer saves clients that come back a "
            "new connection",
        ),
    ] = 300.0
