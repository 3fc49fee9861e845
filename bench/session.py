"""One bench run from start to end: services up, plan measured under a progress bar, services down, numbers made."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.houses import running_houses
from bench.peer import PEER_ENVIRONMENT, TransformersPeer
from bench.plan import SSD, BenchPlan
from bench.provenance import provenance
from bench.results import CellResult, document, evaluate
from bench.runner import CellTurns, OnTurn, Runner
from saguaro.cli.display import Display
from saguaro.types import RoundReport


@dataclass(frozen=True, slots=True)
class BenchRun:
    """What a run brought. `ssd_rounds`: those of the longest SSD answer of the first cell, for the time line."""

    cells: tuple[CellResult, ...]
    ssd_rounds: tuple[RoundReport, ...]
    document: dict[str, Any]
    was_interrupted: bool


def run_bench(plan: BenchPlan, console: Console, *, command: Sequence[str], started: float) -> BenchRun:
    """Measure the plan; `started` is when its `max_seconds` began, of the monotonic clock.

    Interrupted, it ends the services and returns what it has; KeyboardInterrupt where that is nothing. Raises
    ServiceDied where services do not come up, and from the error tree where they refuse.
    """
    origin = provenance(command)
    all_cores = len(os.sched_getaffinity(0))
    peer_threads = plan.transformers_threads or all_cores
    if plan.peer_modes:
        origin["transformers_environment"] = {name: (PEER_ENVIRONMENT | os.environ)[name] for name in PEER_ENVIRONMENT}
    was_interrupted = False
    deadline = None if plan.max_seconds is None else started + plan.max_seconds
    with ExitStack() as stack:
        display = stack.enter_context(Display(console, quiet=True))
        peer = None
        if plan.peer_modes:
            peer = stack.enter_context(TransformersPeer(plan.target, plan.draft, peer_threads))
        houses = stack.enter_context(running_houses(plan, display.on_progress))
        if peer is not None:
            peer.wait_ready()
        display.stop_bars()
        origin["start_seconds"] = round(time.monotonic() - started, 1)
        bar = stack.enter_context(_bar(console))
        runner = Runner(plan, houses, peer, deadline=deadline, on_turn=_shown_by(bar, console))
        stack.callback(runner.close)
        try:
            runner.run()
        except KeyboardInterrupt:
            was_interrupted = True
            if not runner.measured:
                raise
        cores = {mode: houses[mode].num_cores if mode in houses else peer_threads for mode in plan.mode_names}
    cells = tuple(evaluate(plan, item, cores) for item in runner.measured)
    origin["interrupted"] = was_interrupted
    return BenchRun(cells, _longest(runner.measured[0]), document(plan, cells, origin), was_interrupted)


def _longest(measured: CellTurns) -> tuple[RoundReport, ...]:
    answers = [answer for turn in measured.turns.get(SSD, ()) for answer in turn.answers]
    return max((answer.rounds for answer in answers), key=len, default=())


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("measuring"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _shown_by(bar: Progress, console: Console) -> OnTurn:
    """A bar on a terminal; elsewhere a line for each tenth."""
    task = bar.add_task("", total=None)
    shown: set[int] = set()

    def on_turn(done: int, total: int, mode: str) -> None:
        bar.update(task, completed=done, total=total, description=mode)
        tenth = 10 * done // total
        if not console.is_terminal and tenth not in shown:
            shown.add(tenth)
            console.print(f"measuring {tenth:d}0%: turn {done} of {total}" if tenth else f"measuring {total} turns")

    return on_turn
