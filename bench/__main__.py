"""`saguaro bench`: flags to a plan, the plan to results, the results to a table, a document, a picture."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from bench.plan import ALL_MODES, BenchPlan
from bench.plots import require_matplotlib, write_plot
from bench.prompts import KINDS
from bench.session import run_bench
from bench.tables import cell_report, origin_line
from saguaro.cli.trio import ServiceDied
from saguaro.errors import ConfigurationError, SaguaroError

_STARTED = time.monotonic()
# Of a whole run; what is left to a minute is the start of this process and the end of the services.
_QUICK_SECONDS = 45.0
_DEFAULT = BenchPlan()
_EXIT_FAILED, _EXIT_BAD_INPUT = 1, 2


def _text(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def bench(
    target: Annotated[str, typer.Option(help="Target model: demo-target, a folder, or a hub id.")] = _DEFAULT.target,
    draft: Annotated[
        str | None, typer.Option(help="Draft model, likewise. Default: demo-draft for demo-target.")
    ] = None,
    emulate: Annotated[str | None, typer.Option(help="Profile to emulate in place of a pair.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Under a minute: greedy, one at a time, few tokens.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else, on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Picture to write, as in figure.png.")] = None,
    modes: Annotated[str, typer.Option(help=f"Of {', '.join(ALL_MODES)}. Default: all that the pair allows.")] = "",
    temperatures: Annotated[str, typer.Option(help="Temperatures, by comma.")] = _text(_DEFAULT.temperatures),
    concurrencies: Annotated[str, typer.Option(help="Answers at once, by comma.")] = _text(_DEFAULT.concurrencies),
    rtt_ms: Annotated[str, typer.Option(help="Round trips added to the link, as in 0,1,5,20.")] = "0",
    kinds: Annotated[str, typer.Option(help="Kinds of prompts, by comma.")] = ",".join(KINDS),
    prompts: Annotated[int, typer.Option(min=1, max=30, help="Prompts of each kind.")] = _DEFAULT.prompts_per_kind,
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = _DEFAULT.max_tokens,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Answers go on to --max-tokens.")] = False,
    lookahead: Annotated[int, typer.Option(min=1, max=16, help="Draft tokens (K).")] = _DEFAULT.lookahead,
    budget: Annotated[int, typer.Option(min=1, max=128, help="Outcomes prepared (B).")] = _DEFAULT.budget,
    assistant_tokens: Annotated[
        int | None, typer.Option(min=1, help="Draft tokens of assisted generation. Default: transformers' own.")
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="No further batch that would end later.")] = None,
) -> None:
    """SSD, synchronous SD, plain decoding and transformers side by side, interleaved in one run."""
    try:
        draft = draft or _DEFAULT.draft if target == _DEFAULT.target else draft
        if draft is None and emulate is None:
            raise ConfigurationError(f"which draft goes with {target}? Give --draft")
        pair = (target, draft or _DEFAULT.draft, emulate)
        if quick:
            plan = BenchPlan.quick(*pair, max_seconds=_QUICK_SECONDS)
        else:
            plan = BenchPlan(
                *pair,
                modes=_words(modes) if modes else BenchPlan.modes_of(emulate),
                temperatures=_numbers("--temperatures", temperatures),
                concurrencies=tuple(int(value) for value in _numbers("--concurrencies", concurrencies)),
                rtts_ms=_numbers("--rtt-ms", rtt_ms),
                kinds=_words(kinds),
                prompts_per_kind=prompts,
                max_tokens=max_tokens,
                ignore_eos=ignore_eos,
                assistant_tokens=assistant_tokens,
                lookahead=lookahead,
                budget=budget,
                max_seconds=max_seconds,
            )
        _measure(plan, as_json, plot)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except ConfigurationError as error:
        _fail(str(error), _EXIT_BAD_INPUT)
    except (ServiceDied, SaguaroError) as error:
        _fail(str(error), _EXIT_FAILED)


def _measure(plan: BenchPlan, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        require_matplotlib()
    command = ["saguaro", "bench", *sys.argv[1:]]
    run = run_bench(plan, Console(stderr=True), command=command, started=_STARTED)
    if plot is not None:
        write_plot(plot, run.cells, run.ssd_rounds)
    if as_json:
        json.dump(run.document, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    console = Console()
    for cell in run.cells:
        console.print(cell_report(cell))
    console.print(origin_line(run.document["provenance"]), soft_wrap=True, markup=False, highlight=False)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in _words(text))
    except ValueError:
        raise ConfigurationError(f'{flag} is "{text}"; give numbers with commas between them') from None


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"saguaro bench: {message}\n")
    raise typer.Exit(code)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="saguaro bench")
