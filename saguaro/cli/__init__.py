"""The command line: `saguaro --help`. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from saguaro import __version__
from saguaro.cli import certs as _certs
from saguaro.cli import chat_command as _chat
from saguaro.cli import commands as _commands
from saguaro.cli import keys as _keys
from saguaro.cli import policy_command as _policy
from saguaro.cli import roles as _roles
from saguaro.cli import verify_exact_command as _verify_exact
from saguaro.errors import ConfigurationError

EXIT_BAD_INPUT = 2


def _say_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"saguaro {__version__}\n")
        raise typer.Exit


app = typer.Typer(
    name="saguaro",
    help="A server for speculative speculative decoding (SSD).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say the version and end.")
    ] = False,
) -> None:
    pass


_roles.add_to(app)
_commands.add_to(app)
_chat.add_to(app)
_policy.add_to(app)
_verify_exact.add_to(app)
app.command("certs")(_certs.certs)
app.add_typer(_keys.keys_app, name="keys")


def main() -> None:
    """Entry point of `saguaro`."""
    # gRPC's own log lines mean nothing to a user; services that this process starts inherit the setting.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        app()
    except ConfigurationError as error:
        sys.stderr.write(f"saguaro: {error}\n")
        sys.exit(EXIT_BAD_INPUT)


__all__ = ["main", "app"]
