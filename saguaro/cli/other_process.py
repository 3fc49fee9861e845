"""`saguaro bench | distill`: becomes its own process, flags and help untouched: it may load what this must not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from saguaro.cli.extras import require_packages

_HELP = {
    "bench": "SSD, SD and plain decoding side by side; flags: `saguaro bench --help`.",
    "distill": "Make a draft for a target that has none; flags: `saguaro distill --help`.",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for module, text in _HELP.items():
        app.command(
            module,
            help=text,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        )(_becoming(module))


def _becoming(module: str) -> Callable[[typer.Context], None]:
    def become(context: typer.Context) -> None:
        require_packages(module)
        # -P: a file named like the module in the current folder must not take its place.
        command = [sys.executable, "-P", "-m", module, *context.args]
        os.execv(command[0], command)

    return become
