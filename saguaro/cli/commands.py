"""`saguaro up | generate | demo`: flags, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saguaro.cli import bench

_DEFAULT_ADDRESS = "127.0.0.1:50051"

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
    bench.add_to(app)


def up(
    target: Target = "demo-target",
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = "auto",
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway.")] = 50051,
    ports: Annotated[str, typer.Option(help="auto: free ports for all three; default: 50051, 50061, 50071.")] = "fixed",
) -> None:
    """Speculator, verifier and gateway on this machine, until Ctrl-C."""
    from saguaro.cli.trio import Ports
    from saguaro.cli.up import TrioOptions, run_up

    if ports not in ("fixed", "auto"):
        raise typer.BadParameter(f'--ports is "{ports}"; it can be fixed or auto')
    options = TrioOptions(
        target=target,
        draft=_draft(target, draft),
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
        ports=Ports(gateway=port) if ports == "fixed" else None,
    )
    raise typer.Exit(run_up(options))


def generate(
    prompt: Annotated[str, typer.Argument(help='What to answer; "-" reads stdin.')],
    address: Annotated[str, typer.Option(help="host:port of the gateway.")] = _DEFAULT_ADDRESS,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it stands, no chat template.")] = False,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Share of probability that stays.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Number of tokens that stay; 0 keeps all.")] = 0,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to emit.")] = 256,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answer. Default: random.")] = None,
    no_speculation: Annotated[
        bool, typer.Option("--no-speculation", help="Decode plainly, to the same tokens.")
    ] = False,
    model: Annotated[str, typer.Option(help="Name of the model. Default: the one that is served.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else, on stdout.")] = False,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the end of the answer.")] = False,
    rounds: Annotated[bool, typer.Option("--rounds", help="Report every round.")] = False,
) -> None:
    """One answer of a running gateway."""
    from saguaro.cli.generate import run_generate

    code = run_generate(
        prompt,
        address=address,
        raw=raw,
        as_json=as_json,
        options={
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "max_tokens": max_tokens,
            "seed": seed,
            "model": model,
            "ignore_eos": ignore_eos,
            "speculation": not no_speculation,
            "include_rounds": rounds,
        },
    )
    raise typer.Exit(code)


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
        draft=_draft(target, draft),
        emulate=emulate,
        threads=threads,
        lookahead=lookahead,
        budget=budget,
        config=config,
        ports=None,
    )
    raise typer.Exit(run_demo(options, prompt, {"max_tokens": max_tokens}))


def _draft(target: str, draft: str | None) -> str | None:
    """The demo draft fits the demo target alone."""
    if draft is None:
        return "demo-draft" if target == "demo-target" else None
    return None if draft == "none" else draft
