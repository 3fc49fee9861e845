"""`saguaro certs`: certificates for trying TLS out, from an authority of one's own. Not for production."""

from __future__ import annotations

import ipaddress
import os
import secrets
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saguaro.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ROLES = ("gateway", "verifier", "speculator", "client")

_LIFE = timedelta(days=365)


def certs(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Where to write them.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address that services are dialled by, beside localhost."),
    ] = None,
) -> None:
    """An authority (ca.pem), and for each role a certificate of it with its key, to listen with and to dial with.

    Nothing is overwritten: services that trust the authority in FOLDER would no longer know each other.
    """
    try:
        write_certificates(folder, host or ())
    except ModuleNotFoundError:
        raise ConfigurationError(
            "`saguaro certs` needs the package cryptography: pip install 'cryptography>=50,<51'"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"cannot write certificates to {folder}: {error.strerror}") from None
    sys.stdout.write(f"{folder}: ca.pem, and NAME.pem with NAME.key for {', '.join(ROLES)}\n")


def write_certificates(folder: Path, hosts: tuple[str, ...] | list[str] = ()) -> None:
    """ca.pem and, by role, ROLE.pem and ROLE.key; the authority's own key is thrown away.

    Raises ConfigurationError where one of them is there already.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    files = ["ca.pem", *(f"{role}{ending}" for role in ROLES for ending in (".pem", ".key"))]
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise ConfigurationError(
            f"{folder} has {', '.join(there)} already; name another folder, or remove them, and restart the services "
            "that use them with what is new"
        )
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Saguaro development authority {secrets.token_hex(4)}")  # two of one name are told apart badly
    _write(folder / "ca.pem", _signed(_blank(name, name, authority, ca=True), authority))
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(host) for host in ("localhost", "127.0.0.1", role, *hosts)])
        request = _blank(_name(role), name, key, ca=False)
        request = request.add_extension(both, critical=False).add_extension(names, critical=False)
        _write(folder / f"{role}.pem", _signed(request, authority))
        _write_key(folder / f"{role}.key", key)


def _blank(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
    )


def _signed(request: x509.CertificateBuilder, authority: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return request.sign(authority, hashes.SHA256())


def _write(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    with path.open("xb") as file:
        file.write(certificate.public_bytes(Encoding.PEM))


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
