"""`saguaro distill`: flags to a plan, the plan to a draft."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from distill.plan import DistillPlan
from distill.session import run_distillation
from saguaro.errors import ConfigurationError, SaguaroError

_EXIT_FAILED, _EXIT_BAD_INPUT, _EXIT_INTERRUPTED = 1, 2, 130
_DEFAULT = DistillPlan(target="", out=Path())

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_MODEL, _MUCH, _HOW = "The draft", "How much", "How"


@app.command()
def distill(
    target: Annotated[str, typer.Option(help="Target model: demo-target, a folder, or a hub id.")],
    out: Annotated[Path, typer.Option(help="Folder of everything; the draft is its draft/.", file_okay=False)],
    resume: Annotated[bool, typer.Option("--resume", help="Go on where --out was left.")] = False,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers of the target to begin from: 0,1,2. Default: first 4, last 2.", rich_help_panel=_MODEL
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="Begin from this draft instead; it must share the embeddings.", rich_help_panel=_MODEL),
    ] = None,
    draft_vocab: Annotated[
        int | None,
        typer.Option(help="Restrict its LM head to the N most frequent tokens. Default: all.", rich_help_panel=_MODEL),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="Tokens that the target writes.", rich_help_panel=_MUCH)
    ] = _DEFAULT.data_tokens,
    epochs: Annotated[
        float, typer.Option(help="Times that each is trained on.", rich_help_panel=_MUCH)
    ] = _DEFAULT.epochs,
    hours: Annotated[
        float | None,
        typer.Option(
            help="In place of --epochs, and an end to the writing: two fifths write, the rest trains.",
            rich_help_panel=_MUCH,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="Your own prompts, one a line: half of what is asked.", rich_help_panel=_HOW),
    ] = None,
    writers: Annotated[int, typer.Option(help="Texts written at once.", rich_help_panel=_HOW)] = _DEFAULT.writers,
    answer_tokens: Annotated[int, typer.Option(help="Longest answer.", rich_help_panel=_HOW)] = _DEFAULT.answer_tokens,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens of a training step.", rich_help_panel=_HOW)
    ] = _DEFAULT.batch_tokens,
    learning_rate: Annotated[
        float, typer.Option(help="The highest of its schedule.", rich_help_panel=_HOW)
    ] = _DEFAULT.learning_rate,
    dtype: Annotated[
        str, typer.Option(help="bfloat16 or float32: of writing, and of training's products.", rich_help_panel=_HOW)
    ] = _DEFAULT.dtype,
    threads: Annotated[int, typer.Option(help="Threads.", rich_help_panel=_HOW)] = _DEFAULT.threads,
    held_out: Annotated[int, typer.Option(help="Texts for evaluation.", rich_help_panel=_HOW)] = _DEFAULT.held_out,
    evaluate_every_minutes: Annotated[
        float, typer.Option(help="Training time between evaluations and checkpoints.", rich_help_panel=_HOW)
    ] = _DEFAULT.evaluate_every_minutes,
    seed: Annotated[int, typer.Option(help="Of prompts, sampling and order.", rich_help_panel=_HOW)] = _DEFAULT.seed,
) -> None:
    """Make a draft for a target that has none: the target writes texts, a few of its layers learn to follow it.

    Ctrl-C saves; --resume goes on. The draft runs as `saguaro up --target T --draft OUT/draft`.
    """
    console = Console(stderr=True)
    try:
        plan = DistillPlan(
            target=target,
            out=out,
            layers=_whole_numbers(layers),
            start=start,
            draft_vocab=draft_vocab,
            data_tokens=tokens,
            epochs=epochs,
            hours=hours,
            prompts=prompts,
            writers=writers,
            answer_tokens=answer_tokens,
            batch_tokens=batch_tokens,
            learning_rate=learning_rate,
            dtype=dtype,
            threads=threads,
            held_out=held_out,
            evaluate_every_minutes=evaluate_every_minutes,
            seed=seed,
        )
        report, was_interrupted = run_distillation(plan, resume=resume, console=console)
    except ConfigurationError as error:
        _fail(str(error), _EXIT_BAD_INPUT)
    except SaguaroError as error:
        _fail(str(error), _EXIT_FAILED)
    except KeyboardInterrupt:
        _fail(f"interrupted; go on with --resume --out {out}", _EXIT_INTERRUPTED)
    for line in report.lines:
        console.print(line, markup=False, highlight=False)
    console.print(f"saguaro up --target {target} --draft {plan.draft_folder}", markup=False, highlight=False)
    if was_interrupted:
        _fail(f"interrupted; what was learnt is saved, go on with --resume --out {out}", _EXIT_INTERRUPTED)


def _whole_numbers(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigurationError(f'--layers is "{text}"; give whole numbers with commas between them') from None


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"saguaro distill: {message}\n")
    raise typer.Exit(code)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app(prog_name="saguaro distill")
