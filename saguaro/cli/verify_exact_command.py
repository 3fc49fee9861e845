"""`saguaro verify-exact`: its flags, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saguaro.cli.commands import Budget, Config, Draft, Emulate, Lookahead, Target, Threads
from saguaro.cli.connection import ApiKey, Connection, TlsCa, refuse_beside
from saguaro.cli.extras import require_packages

_LOOKAHEAD, _BUDGET = 4, 16


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify-exact")(verify_exact)


def verify_exact(
    prompts: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="One prompt a line. Default: eight built-in ones.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="host:port of a running gateway. Default: a trio of its own on free ports.")
    ] = None,
    api_key: ApiKey = None,
    tls_ca: TlsCa = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    acceptance: Annotated[
        str | None, typer.Option(help="Of draft tokens: coupled or rejection. Default: the service's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every prompt.")] = 0,
    n: Annotated[int, typer.Option("--n", min=1, help="Choices of each prompt.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    samples: Annotated[
        int, typer.Option(min=50, help="Answers of each prompt, each way, where laws are compared (rejection mode).")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else, on stdout.")] = False,
    target: Target = None,
    draft: Draft = None,
    emulate: Emulate = None,
    threads: Threads = None,
    lookahead: Lookahead = None,
    budget: Budget = None,
    config: Config = None,
) -> None:
    """Answer prompts with speculation and without, and compare them token for token.

    Exit code: 0 equal, 1 different, 2 could not run. Answers in rejection mode must follow the same law instead; a
    chi-square test over many seeds says whether they do.
    """
    of_trio = {"target": target, "draft": draft, "emulate": emulate, "threads": threads, "config": config}
    if address is not None:
        refuse_beside("--address", {**of_trio, "lookahead": lookahead, "budget": budget})
    elif tls_ca is not None:
        raise typer.BadParameter("--tls-ca is for a running gateway: name it with --address")
    else:
        require_packages("verifier", "speculator", "gateway")
    from saguaro.cli.verify_exact import read_prompts, run_verify_exact
    from saguaro.cli.wiring import TrioOptions
    from saguaro.errors import InvalidRequest

    # Always: a policy that found plain decoding faster here would leave nothing to verify.
    policy = f"fixed:{_LOOKAHEAD if lookahead is None else lookahead},{_BUDGET if budget is None else budget},inf"
    trio = TrioOptions(**of_trio, policy=policy)  # type: ignore[arg-type]
    try:
        texts = read_prompts(prompts)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None
    code = run_verify_exact(
        trio if address is None else Connection(address, api_key, tls_ca),
        texts,
        {"temperature": temperature, "acceptance": acceptance, "seed": seed, "n": n, "max_tokens": max_tokens},
        num_samples=samples,
        as_json=as_json,
        api_key=api_key,
    )
    raise typer.Exit(code)
