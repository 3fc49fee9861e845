"""`saguaro keys add | list | remove`: the file of API keys that a gateway reads (`--keys-file`)."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from saguaro.errors import ConfigurationError

EXIT_BAD_INPUT = 2

File = Annotated[Path, typer.Option("--file", dir_okay=False, help="The keys file, as the gateway's --keys-file.")]
Name = Annotated[str, typer.Argument(help="Whose key it is; logs and refusals name it.")]

keys_app = typer.Typer(help="API keys of a gateway.", no_args_is_help=True)


@keys_app.command()
def add(
    name: Name,
    file: File,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Calls of any kind. Default: no limit.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Tokens of prompts and answers. Default: no limit.")
    ] = None,
    concurrent_answers: Annotated[
        int | None, typer.Option(min=1, help="Answers at once, each choice one. Default: no limit.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model it may ask for; repeatable. Default: all.")] = None,
    expires_in_days: Annotated[float | None, typer.Option(min=0, help="Life of the key. Default: no end.")] = None,
    may_set_policy: Annotated[
        bool, typer.Option("--may-set-policy", help="It may change the deployment's policy over gRPC.")
    ] = False,
) -> None:
    """Make a key, keep its hash in the file and print it, once: it cannot be shown again."""
    from saguaro.keys import KeyRecord, hash_of, new_key, read_keys, write_keys

    with _faults_told(), _sole_writer(file):
        records = read_keys(file) if file.exists() else ()
        if any(record.name == name for record in records):
            raise ConfigurationError(f'{file} has a key "{name}" already; remove it first, or choose another name')
        key = new_key()
        expires_at = None if expires_in_days is None else datetime.now(UTC) + timedelta(days=expires_in_days)
        record = KeyRecord(
            name=name,
            sha256=hash_of(key),
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            concurrent_answers=concurrent_answers,
            models=tuple(model) if model else None,
            may_set_policy=may_set_policy,
            expires_at=expires_at,
        )
        write_keys(file, (*records, record))
    sys.stdout.write(f"{key}\n")


@keys_app.command("list")
def list_keys(file: File) -> None:
    """Names and limits of the keys in the file."""
    from rich.console import Console
    from rich.table import Table

    from saguaro.keys import read_keys

    with _faults_told():
        records = read_keys(file)
    table = Table("name", "requests/min", "tokens/min", "at once", "models", "sets policy", "expires")
    for record in records:
        limits = (record.requests_per_minute, record.tokens_per_minute, record.concurrent_answers)
        models = "all" if record.models is None else ", ".join(record.models)
        expires = "never" if record.expires_at is None else record.expires_at.isoformat(timespec="seconds")
        sets_policy = "yes" if record.may_set_policy else "no"
        numbers = ("-" if limit is None else str(limit) for limit in limits)
        table.add_row(record.name, *numbers, models, sets_policy, expires)
    Console().print(table)


@keys_app.command()
def remove(name: Name, file: File) -> None:
    """Take a key out of the file; gateways refuse it within a second."""
    from saguaro.keys import read_keys, write_keys

    with _faults_told(), _sole_writer(file):
        records = read_keys(file)
        left = tuple(record for record in records if record.name != name)
        if len(left) == len(records):
            known = ", ".join(record.name for record in records) or "none"
            raise ConfigurationError(f'{file} has no key "{name}"; it has {known}')
        write_keys(file, left)


@contextmanager
def _faults_told() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        sys.stderr.write(f"saguaro: {error}\n")
        raise typer.Exit(EXIT_BAD_INPUT) from None


@contextmanager
def _sole_writer(file: Path) -> Iterator[None]:
    """Until the block ends no other `saguaro keys` changes what is in this folder: each would lose the other's key."""
    try:
        folder = os.open(file.parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigurationError(f"cannot open the folder of the keys file {file}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
