"""`saguaro speculator | verifier | gateway`: each becomes the service's own process, flags and help untouched."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from saguaro.cli.extras import require_packages

# Role to the package that `python -m` runs.
PACKAGES = {"speculator": "speculator_service", "verifier": "verifier_service", "gateway": "gateway"}

_HELP = {
    "speculator": "Serve a draft model; flags: `saguaro speculator --help`.",
    "verifier": "Serve a target model; flags: `saguaro verifier --help`.",
    "gateway": "Serve the public door; flags: `saguaro gateway --help`.",
}


def service_command(role: str, flags: Sequence[str]) -> list[str]:
    """Command line of a service. -P: a file named like a service in the current folder must not take its place."""
    return [sys.executable, "-P", "-m", PACKAGES[role], *flags]


def add_to(app: typer.Typer) -> None:
    """Add one command a role."""
    passed_through = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    for role in PACKAGES:
        app.command(role, help=_HELP[role], context_settings=passed_through)(_runner(role))


def _runner(role: str):  # type: ignore[no-untyped-def]
    def run(context: typer.Context) -> None:
        require_packages(role)
        command = service_command(role, context.args)
        # The same process: signals and exit codes need no forwarding.
        os.execv(command[0], command)

    return run
