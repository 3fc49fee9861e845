"""`saguaro bench`: becomes the bench's own process, flags and help untouched, since it may load what this must not."""

from __future__ import annotations

import os
import sys

import typer


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "bench",
        help="SSD, SD and plain decoding side by side; flags: `saguaro bench --help`.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(_run)


def _run(context: typer.Context) -> None:
    # -P: a file named like the bench in the current folder must not take its place.
    command = [sys.executable, "-P", "-m", "bench", *context.args]
    os.execv(command[0], command)
