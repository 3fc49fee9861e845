"""`saguaro chat`: its flags, and nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from saguaro.cli.commands import Budget, Config, Draft, Emulate, Lookahead, Target, Threads
from saguaro.cli.connection import ApiKey, Connection, TlsCa, refuse_beside
from saguaro.cli.extras import require_packages


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(chat)


def chat(
    server: Annotated[
        str | None,
        typer.Option("--server", "--address", help="host:port of a running gateway. Default: a trio of its own."),
    ] = None,
    api_key: ApiKey = None,
    tls_ca: TlsCa = None,
    show_provenance: Annotated[
        bool, typer.Option("--show-provenance", help="Colour tokens by where they came from.")
    ] = False,
    system: Annotated[str, typer.Option(help="What stands before the conversation.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed and words, same answers. Default: random.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="Share of probability that stays.")] = 0.95,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 1024,
    model: Annotated[str, typer.Option(help="Name of the model. Default: the one that is served.")] = "",
    no_speculation: Annotated[bool, typer.Option("--no-speculation", help="Decode plainly.")] = False,
    target: Target = None,
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = None,
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
) -> None:
    """A conversation: type, and the model answers. /help says what else can be typed.

    Lines from a pipe are messages too; their answers are all that goes to stdout.
    """
    from saguaro.cli.chat import Manner, run_chat

    manner = Manner(
        generate={
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_tokens,
            "model": model,
            "speculation": not no_speculation,
        },
        system=system,
        seed=seed,
        shows_provenance=show_provenance,
    )
    of_trio = {
        "target": target,
        "draft": draft,
        "emulate": emulate,
        "threads": threads,
        "lookahead": lookahead,
        "budget": budget,
        "config": config,
    }
    if server is not None:
        refuse_beside("--server", of_trio)
        raise typer.Exit(run_chat(Connection(server, api_key, tls_ca), manner))
    if tls_ca is not None:
        raise typer.BadParameter("--tls-ca is for a running gateway: name it with --server")
    require_packages("verifier", "speculator", "gateway")
    from saguaro.cli.wiring import TrioOptions

    raise typer.Exit(run_chat(TrioOptions(**of_trio), manner, api_key))  # type: ignore[arg-type]
