"""The command line: `saguaro --help`. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import os

import typer

from saguaro.cli import certs as _certs
from saguaro.cli import chat_command as _chat
from saguaro.cli import commands as _commands
from saguaro.cli import keys as _keys
from saguaro.cli import policy_command as _policy
from saguaro.cli import roles as _roles
from saguaro.cli import verify_exact_command as _verify_exact

app = typer.Typer(
    name="saguaro",
    help="A server for speculative speculative decoding (SSD).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
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
    app()


__all__ = ["main", "app"]
