"""How commands reach a gateway: where it is, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
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
        from saguaro.config import refuse_unknown_variables

        refuse_unknown_variables()
        tls = None if self.tls_ca is None else Tls(ca=self.tls_ca)
        return Client(self.address, api_key=self.api_key, tls=tls, retry=retry)


def refuse_beside(flag: str, of_trio: Mapping[str, object]) -> None:
    """Raises BadParameter where `flag` names a running gateway and others say what trio to start.

    `of_trio`: these by parameter name; None is not given.
    """
    given = ["--" + name.replace("_", "-") for name, value in of_trio.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"{', '.join(given)} would change nothing at the running gateway that {flag} names; leave out the one or "
            "the other"
        )
