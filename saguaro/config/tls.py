"""Settings of TLS, as who listens and as who dials. Files are PEM; those of a port are read again when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings


class ListenTlsSettings(BaseSettings):
    """TLS of a service's own ports."""

    tls_cert: Annotated[
        Path | None, Field(description="certificate chain of this service's ports; default: plain text")
    ] = None
    tls_key: Annotated[Path | None, Field(description="private key of tls_cert")] = None
    tls_client_ca: Annotated[
        Path | None,
        Field(description="authorities whose clients may connect (mTLS); default: any client may"),
    ] = None


class DialTlsSettings(BaseSettings):
    """TLS towards the service behind this one."""

    tls_ca: Annotated[
        Path | None,
        Field(description="authorities that the service behind this one is trusted by; default: dial it in plain text"),
    ] = None
    tls_client_cert: Annotated[
        Path | None, Field(description="certificate to show it, where it asks for one (mTLS)")
    ] = None
    tls_client_key: Annotated[Path | None, Field(description="private key of tls_client_cert")] = None
