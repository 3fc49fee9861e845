"""How commands reach a gateway: where it is, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from saguaro.client import Client, Retry

ApiKey = Annotated[
    str | None, typer.Option(envvar="SAGUARO_API_KEY", show_envvar=True, help="Key, where the gateway asks for one.")
]
TlsCa = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Authorities (PEM) that the gateway is trusted by. Default: plain text."),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """A gateway that runs. `api_key` is no part of its text."""

    address: str
    api_key: str | None = None
    tls_ca: Path | None = None

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    def client(self, retry: Retry) -> Client:
        """Raises ConfigurationError where it cannot be dialled."""
        from saguaro.client import Client, Tls

        tls = None if self.tls_ca is None else Tls(ca=self.tls_ca)
        return Client(self.address, api_key=self.api_key, tls=tls, retry=retry)
