"""`saguaro up | demo`: flags, and nothing else."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from saguaro.cli import other_process
from saguaro.cli.connection import ApiKey
from saguaro.cli.extras import require_packages
from saguaro.cli.generate_command import generate

Target = Annotated[
    str | None, typer.Option(help="Target model: demo-target, a folder, or a Hugging Face id. Default: demo-target.")
]
Draft = Annotated[
    str | None,
    typer.Option(help="Draft model, likewise, or none. Default: demo-draft for demo-target, none for others."),
]
Emulate = Annotated[
    str | None,
    typer.Option(metavar="PROFILE", help="Emulated devices in place of models: a TOML file, or a shipped profile."),
]
Threads = Annotated[
    str | None, typer.Option(help="Threads of verifier and speculator, as in 3,1. auto: by the cores, the default.")
]
Lookahead = Annotated[int | None, typer.Option(min=0, max=16, help="Draft tokens in a speculation (K).")]
Budget = Annotated[int | None, typer.Option(min=0, max=128, help="Outcomes prepared a round (B).")]
Config = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="TOML settings of the services.")]


class PortChoice(StrEnum):
    """Which ports the services take that no flag, variable or file names."""

    FIXED = "fixed"
    AUTO = "auto"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(generate)
    app.command()(demo)
    other_process.add_to(app)


def up(
    target: Target = None,
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = None,
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the gateway; 0 takes a free one. Default: 50051.")
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(metavar="N", help="Port of the gateway's OpenAI API; 0 takes a free one; or none. Default: 8000."),
    ] = None,
    ports: Annotated[
        PortChoice,
        typer.Option(help="auto: free ports where none is named; fixed: 50051, 50061, 50071 and 8000."),
    ] = PortChoice.FIXED,
    verifiers: Annotated[int, typer.Option(min=1, max=8, help="Verifiers: one that dies ends no answer.")] = 1,
) -> None:
    """Speculator, verifier and gateway on this machine, until Ctrl-C."""
    require_packages("verifier", "speculator", "gateway")
    from saguaro.cli.up import run_up
    from saguaro.cli.wiring import TrioOptions

    options = TrioOptions(
        target=target,
        draft=draft,
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
        ports=ports.value,
        port=port,
        http_port=http_port,
        num_verifiers=verifiers,
    )
    raise typer.Exit(run_up(options))


def demo(
    prompt: Annotated[str, typer.Argument(help="What to answer.")] = "Explain why the sky is blue.",
    target: Target = None,
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = None,
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to emit.")] = 128,
    api_key: ApiKey = None,
) -> None:
    """A trio on free ports, one answer, and down again."""
    require_packages("verifier", "speculator", "gateway")
    from saguaro.cli.up import run_demo
    from saguaro.cli.wiring import TrioOptions

    options = TrioOptions(
        target=target,
        draft=draft,
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
    )
    raise typer.Exit(run_demo(options, prompt, {"max_tokens": max_tokens}, api_key))
