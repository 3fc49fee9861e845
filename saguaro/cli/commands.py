"""`saguaro up | demo`: flags, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saguaro.cli import other_process
from saguaro.cli.generate_command import generate

Target = Annotated[str, typer.Option(help="Target model: demo-target, a folder, or a Hugging Face id.")]
Draft = Annotated[
    str | None,
    typer.Option(help="Draft model, likewise, or none. Default: demo-draft for demo-target, none for others."),
]
Emulate = Annotated[
    str | None,
    typer.Option(metavar="PROFILE", help="Emulated devices in place of models: a TOML file, or a shipped profile."),
]
Threads = Annotated[str, typer.Option(help="Threads of verifier and speculator, as in 3,1. auto: by the cores.")]
Lookahead = Annotated[int | None, typer.Option(min=0, max=16, help="Draft tokens in a speculation (K).")]
Budget = Annotated[int | None, typer.Option(min=0, max=128, help="Outcomes prepared a round (B).")]
Config = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="TOML settings of the services.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(generate)
    app.command()(demo)
    other_process.add_to(app)


def up(
    target: Target = "demo-target",
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = "auto",
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway.")] = 50051,
    http_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway's OpenAI API.")] = 8000,
    ports: Annotated[str, typer.Option(help="auto: free ports for all; default: 50051, 50061, 50071, 8000.")] = "fixed",
    verifiers: Annotated[int, typer.Option(min=1, max=8, help="Verifiers: one that dies ends no answer.")] = 1,
) -> None:
    """Speculator, verifier and gateway on this machine, until Ctrl-C."""
    from saguaro.cli.trio import Ports
    from saguaro.cli.up import TrioOptions, run_up

    if ports not in ("fixed", "auto"):
        raise typer.BadParameter(f'--ports is "{ports}"; it can be fixed or auto')
    options = TrioOptions(
        target=target,
        draft=draft_of(target, draft),
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
        ports=Ports.fixed(gateway=port, http=http_port, num_verifiers=verifiers) if ports == "fixed" else None,
        num_verifiers=verifiers,
    )
    raise typer.Exit(run_up(options))


def demo(
    prompt: Annotated[str, typer.Argument(help="What to answer.")] = "Explain why the sky is blue.",
    target: Target = "demo-target",
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = "auto",
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to emit.")] = 128,
) -> None:
    """A trio on free ports, one answer, and down again."""
    from saguaro.cli.up import TrioOptions, run_demo

    options = TrioOptions(
        target=target,
        draft=draft_of(target, draft),
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
        ports=None,
    )
    raise typer.Exit(run_demo(options, prompt, {"max_tokens": max_tokens}))


def draft_of(target: str, draft: str | None) -> str | None:
    """The demo draft fits the demo target alone."""
    if draft is None:
        return "demo-draft" if target == "demo-target" else None
    return None if draft == "none" else draft
