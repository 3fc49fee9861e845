"""TLS as settings say it: of a service's ports, gRPC and HTTP alike, and towards the service behind it.

Certificates of ports are read again when their files change; those to dial with, at each new channel.
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from saguaro.channel import Tls
from saguaro.config import DialTlsSettings, ServiceSettings
from saguaro.errors import ConfigurationError

logger = logging.getLogger(__name__)

_State = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class PortTls:
    """PEM files of a port. With `client_ca`, clients must show a certificate of one of those authorities."""

    cert: Path
    key: Path
    client_ca: Path | None

    def context(self) -> ssl.SSLContext:
        """For a TLS port of Python's own, from the files as they are now. Raises ConfigurationError that names one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"tls_cert {self.cert} with tls_key {self.key}: {_why(error)}") from None
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"tls_client_ca {self.client_ca}: {_why(error)}") from None
        return context

    def reloading_context(self) -> ssl.SSLContext:
        """A context that reads changed files at the next connection; broken ones leave it as it was."""
        watched = _Watched(self)
        current = self.context()

        def choose(connection: Any, server_name: str | None, context: ssl.SSLContext) -> None:
            nonlocal current
            if watched.has_changed():
                current = self.context()
            connection.context = current

        current.sni_callback = choose
        return current

    def grpc_credentials(self) -> Any:
        """`grpc.ServerCredentials`, which read changed files at the next connection likewise."""
        watched = _Watched(self)

        def fetch() -> Any:
            return self._grpc_configuration() if watched.has_changed() else None

        return grpc.dynamic_ssl_server_credentials(
            self._grpc_configuration(), fetch, require_client_authentication=self.client_ca is not None
        )

    def _grpc_configuration(self) -> Any:
        self.context()  # says what is wrong with the files; gRPC does not
        authorities = None if self.client_ca is None else self.client_ca.read_bytes()
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=authorities)


def port_tls(settings: ServiceSettings) -> PortTls | None:
    """None where the ports are plain text. Raises ConfigurationError for settings of which one is missing."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ConfigurationError(
            f"tls_cert is {cert}, tls_key {key}, tls_client_ca {client_ca}; TLS takes a certificate and its key"
        )
    return PortTls(cert, key, client_ca)


def dial_tls(settings: DialTlsSettings) -> Tls | None:
    """How a service dials the one behind it; None in plain text. Raises ConfigurationError for a lone certificate."""
    if settings.tls_ca is not None:
        return Tls(settings.tls_ca, settings.tls_client_cert, settings.tls_client_key)
    if settings.tls_client_cert is not None or settings.tls_client_key is not None:
        raise ConfigurationError("tls_client_cert or tls_client_key is given, but no tls_ca: it goes in plain text")
    return None


class _Watched:
    """Whether a port's files have changed since the last look, and are whole."""

    def __init__(self, tls: PortTls) -> None:
        self._tls = tls
        self._seen = self._state()

    def has_changed(self) -> bool:
        """Called at every connection, by gRPC on a thread of its own; tells of a broken change once, in the log."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            self._tls.context()
        except ConfigurationError as error:
            logger.error("%s; the certificates stay as they were", error)
            return False
        logger.info("certificate %s is read again", self._tls.cert)
        return True

    def _state(self) -> _State:
        paths = (self._tls.cert, self._tls.key, self._tls.client_ca)
        return tuple(_state_of(path) for path in paths if path is not None)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
