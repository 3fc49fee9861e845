"""`saguaro bench`: flags to a plan, the plan to results, the results to a table, a document, a picture."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from bench.acceptance import parse_acceptances
from bench.plan import ALL_MODES, BenchPlan
from bench.plots import check_plot, write_plot
from bench.prompts import KINDS
from bench.session import run_bench
from bench.sweep import parse_sweep
from bench.tables import acceptance_report, cell_report, origin_line
from saguaro.cli.trio import ServiceDied
from saguaro.errors import ConfigurationError, SaguaroError

_STARTED = time.monotonic()
# Of a whole run; what is left to a minute is the start of this process and the end of the services.
_QUICK_SECONDS = 45.0
_DEFAULT = BenchPlan()
_LEAST_WIDTH = 110
_EXIT_FAILED, _EXIT_BAD_INPUT, _EXIT_INTERRUPTED = 1, 2, 130


def _text(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_WHAT, _HOW, _OUT = "What is measured", "How much of it", "What comes out"


@app.command()
def bench(
    target: Annotated[
        str | None,
        typer.Option(
            help="Target model: demo-target, a folder, or a hub id. Default: demo-target.", rich_help_panel=_WHAT
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(help="Draft model, likewise. Default: demo-draft for demo-target.", rich_help_panel=_WHAT),
    ] = None,
    emulate: Annotated[
        str | None, typer.Option(help="Profile of a pair to emulate: a shipped one, or a file.", rich_help_panel=_WHAT)
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option(
            help=f"Of {', '.join(ALL_MODES)}. Default: all that the pair allows; --quick leaves out plain_all_cores "
            "and transformers.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    lookahead: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, help=f"Most draft tokens of SSD (K). Default: {_DEFAULT.lookahead}.", rich_help_panel=_WHAT
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=128,
            help=f"Most outcomes prepared a round (B). Default: {_DEFAULT.budget}.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    sd_lookahead: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=16,
            help=f"Draft tokens of synchronous SD, always. Default: {_DEFAULT.sd_lookahead}.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    assistant_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draft tokens of transformers' assisted generation. Default: its own.", rich_help_panel=_WHAT
        ),
    ] = None,
    transformers_threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of transformers. Default: one a core.", rich_help_panel=_WHAT)
    ] = None,
    sweep: Annotated[
        str,
        typer.Option(
            help='Fixed policies beside the automatic one: all combinations of "K=4,6,8 B=16,24 b*=0,inf"; B=0 is SD.',
            rich_help_panel=_WHAT,
        ),
    ] = "",
    acceptance: Annotated[
        str,
        typer.Option(
            help="SSD by acceptance mode and C: of coupled, rejection, rejection:0.5, rejection:auto, by comma.",
            rich_help_panel=_WHAT,
        ),
    ] = "",
    rtt_ms: Annotated[
        str | None,
        typer.Option(
            help="Round trips added between verifier and speculator, as in 0,1,5,20: a curve of SSD.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Under a minute: greedy, one at a time, few tokens. Other flags still hold.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    temperatures: Annotated[
        str | None,
        typer.Option(help=f"By comma. Default: {_text(_DEFAULT.temperatures)}.", rich_help_panel=_HOW),
    ] = None,
    concurrencies: Annotated[
        str | None,
        typer.Option(
            help=f"Answers at once, by comma. Default: {_text(_DEFAULT.concurrencies)}.", rich_help_panel=_HOW
        ),
    ] = None,
    kinds: Annotated[
        str | None, typer.Option(help=f"Kinds of prompts. Default: {','.join(KINDS)}.", rich_help_panel=_HOW)
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option(
            min=1, max=30, help=f"Prompts of each kind. Default: {_DEFAULT.prompts_per_kind}.", rich_help_panel=_HOW
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=2, help=f"Most tokens of an answer. Default: {_DEFAULT.max_tokens}.", rich_help_panel=_HOW),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Answers go on to --max-tokens.", rich_help_panel=_HOW)
    ] = False,
    max_seconds: Annotated[
        float | None, typer.Option(min=1, help="No further batch that would end later.", rich_help_panel=_HOW)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, nothing else, on stdout.", rich_help_panel=_OUT)
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Picture to write: frontier, rounds on a time line, curve over round trips.",
            rich_help_panel=_OUT,
        ),
    ] = None,
) -> None:
    """SSD, synchronous SD, plain decoding and transformers side by side, interleaved in one run.

    Ctrl-C ends the services and shows what was measured until then.
    """
    try:
        if emulate is not None and (target, draft) != (None, None):
            raise ConfigurationError("--target and --draft have no place beside --emulate; leave out one or the other")
        target = target or _DEFAULT.target
        draft = draft or _DEFAULT.draft if target == _DEFAULT.target else draft
        if draft is None and emulate is None:
            raise ConfigurationError(f"which draft goes with {target}? Give --draft")
        pair = (target, draft or _DEFAULT.draft, emulate)
        base = (
            BenchPlan.quick(*pair, max_seconds=_QUICK_SECONDS)
            if quick
            else BenchPlan(*pair, modes=BenchPlan.modes_of(emulate))
        )
        plan = _with(
            base,
            modes=_words(modes),
            temperatures=_numbers("--temperatures", temperatures),
            concurrencies=_whole_numbers("--concurrencies", concurrencies),
            rtts_ms=_numbers("--rtt-ms", rtt_ms),
            kinds=_words(kinds),
            prompts_per_kind=prompts,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            assistant_tokens=assistant_tokens,
            transformers_threads=transformers_threads,
            sd_lookahead=sd_lookahead,
            lookahead=lookahead,
            budget=budget,
            sweep=parse_sweep(sweep, lookahead=lookahead or base.lookahead, budget=budget or base.budget),
            acceptances=parse_acceptances(acceptance),
            max_seconds=max_seconds,
        )
        _measure(plan, as_json, plot)
    except KeyboardInterrupt:
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    except ConfigurationError as error:
        _fail(str(error), _EXIT_BAD_INPUT)
    except (ServiceDied, SaguaroError) as error:
        _fail(str(error), _EXIT_FAILED)


def _with(base: BenchPlan, **given: Any) -> BenchPlan:
    """The plan with what the user gave; None stands for what was not given."""
    return dataclasses.replace(base, **{name: value for name, value in given.items() if value is not None})


def _measure(plan: BenchPlan, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        check_plot(plot)
    signal.signal(signal.SIGTERM, _interrupt)
    command = ["saguaro", "bench", *sys.argv[1:]]
    run = run_bench(plan, Console(stderr=True), command=command, started=_STARTED)
    if plot is not None:
        write_plot(plot, run.cells, run.ssd_rounds)
    if as_json:
        json.dump(run.document, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        console = Console()
        console.width = max(console.width, _LEAST_WIDTH)  # figures cut off are worse than lines that wrap
        for cell in run.cells:
            console.print(cell_report(cell))
        if plan.acceptances:
            console.print(acceptance_report(run.cells, plan.acceptances))
        console.print(origin_line(run.document["provenance"]), soft_wrap=True, markup=False, highlight=False)
    if run.was_interrupted:
        sys.stderr.write("saguaro bench: interrupted; what was measured until then is shown\n")
        raise typer.Exit(_EXIT_INTERRUPTED)


def _interrupt(number: int, frame: object) -> NoReturn:
    # The same way out as Ctrl-C.
    raise KeyboardInterrupt


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(flag: str, text: str | None) -> tuple[float, ...] | None:
    try:
        words = _words(text)
        return None if words is None else tuple(float(word) for word in words)
    except ValueError:
        raise ConfigurationError(f'{flag} is "{text}"; give numbers with commas between them') from None


def _whole_numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    try:
        words = _words(text)
        return None if words is None else tuple(int(word) for word in words)
    except ValueError:
        raise ConfigurationError(f'{flag} is "{text}"; give whole numbers with commas between them') from None


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"saguaro bench: {message}\n")
    raise typer.Exit(code)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="saguaro bench")
