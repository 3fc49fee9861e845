"""One distillation from start to end: data, draft, training with its curve, report."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from distill import checkpoint, curve
from distill.checkpoint import State
from distill.cut import Draft, begin_from, cut, most_frequent, save
from distill.data import write_data
from distill.evaluation import evaluate
from distill.plan import DistillPlan
from distill.report import Report, report_on
from distill.shards import Sample, ShardFolder
from distill.training import Training
from saguaro.engine.end_tokens import end_token_ids
from saguaro.engine.families import read_config
from saguaro.engine.fingerprint import read_tokenizer
from saguaro.engine.loading import resolve_folder
from saguaro.errors import ConfigurationError


@dataclass(slots=True)
class _Stop:
    """Set by Ctrl-C: the step that runs is finished first."""

    wanted: bool = False


@dataclass(slots=True)
class _Losses:
    """Since the last point of the curve."""

    values: list[float] = field(default_factory=list)

    def taken(self) -> float | None:
        mean = sum(self.values) / len(self.values) if self.values else None
        self.values.clear()
        return mean


def run_distillation(plan: DistillPlan, *, resume: bool, console: Console) -> tuple[Report, bool]:
    """The report, and whether Ctrl-C ended the training early; what there is by then is saved either way.

    KeyboardInterrupt while data is written: whole shards stay. Raises ConfigurationError for a plan that cannot be.
    """
    plan.check()
    if not resume and plan.out.exists() and any(plan.out.iterdir()):
        raise ConfigurationError(f"--out {plan.out} is not empty; go on with --resume, or name another folder")
    if resume and not plan.out.is_dir():
        raise ConfigurationError(f"--resume goes on where --out was left, but there is no folder {plan.out}")
    torch.set_num_threads(plan.threads)
    state = checkpoint.load_state(plan.checkpoint_folder)
    # Where training has begun, the hours for writing are spent.
    writing_seconds = None if plan.hours is None else 0.0 if state is not None else plan.hours * 3600 * plan.data_share
    deadline = None if writing_seconds is None else time.monotonic() + writing_seconds
    with _bar(console) as bar:
        task = bar.add_task("target", total=None, note="")
        bar_began = time.monotonic()

        def on_tokens(what: str, done: int, wanted: int | None) -> None:
            rate = done / (time.monotonic() - bar_began)
            bar.update(task, description=what, completed=done, total=wanted, note=f"{done:,} tokens, {rate:.0f} tok/s")

        write_data(plan, on_tokens, deadline)
    draft, origin = _draft(plan, state)
    training = Training(plan, draft, lambda: list(ShardFolder(plan.data_folder).samples()), state)
    stop = _Stop()
    with _stopping(stop):
        _train(plan, training, origin, stop, console)
    held_out = list(ShardFolder(plan.held_out_folder).samples())
    with _bar(console) as bar:
        task = bar.add_task("report", total=len(held_out), note="")
        report = report_on(plan, training.progress, held_out, lambda done: bar.update(task, completed=done))
    return report, stop.wanted


def _draft(plan: DistillPlan, state: State | None) -> tuple[Draft, dict[str, Any]]:
    """The draft to train, and its origin. A checkpoint's origin wins over the plan's, and must be of its target."""
    if state is not None:
        origin = state.origin
        if origin["target"] != plan.target:
            raise ConfigurationError(f"{plan.out} distils {origin['target']}, not --target {plan.target}")
        _check_shape(plan, origin)
        token_ids, layers, start = origin["token_ids"], origin["layers"], origin["start"]
    else:
        token_ids = None if plan.draft_vocab is None else _token_ids(plan)
        layers, start = plan.layers, plan.start
        origin = {"target": plan.target, "token_ids": token_ids, "layers": layers, "start": start}
        origin["draft_vocab"] = plan.draft_vocab
    draft = cut(plan.target, layers, token_ids) if start is None else begin_from(start, plan.target, token_ids)
    return draft, origin


def _check_shape(plan: DistillPlan, origin: dict[str, Any]) -> None:
    """What a draft is cut from is settled when its training begins; to ask for something else then must not be lost."""
    num_tokens = None if origin["token_ids"] is None else len(origin["token_ids"])
    began = {"layers": origin["layers"], "start": origin["start"], "draft-vocab": origin.get("draft_vocab", num_tokens)}
    asked = {"layers": plan.layers and list(plan.layers), "start": plan.start, "draft-vocab": plan.draft_vocab}
    for flag, value in asked.items():
        before = list(began[flag]) if isinstance(began[flag], tuple) else began[flag]
        if value is not None and value != before:
            raise ConfigurationError(
                f"--{flag} is {value}, but the training in {plan.out} began with {before or 'the default'}; leave it "
                "out, or begin in another folder"
            )


def _token_ids(plan: DistillPlan) -> tuple[int, ...]:
    folder = resolve_folder(plan.target)
    config = read_config(folder)
    always = end_token_ids(config, folder, folder, read_tokenizer(folder))
    assert plan.draft_vocab is not None
    return most_frequent(ShardFolder(plan.data_folder).token_counts(config.vocab_size), plan.draft_vocab, always)


def _train(plan: DistillPlan, training: Training, origin: dict[str, Any], stop: _Stop, console: Console) -> None:
    held_out: list[Sample] = list(ShardFolder(plan.held_out_folder).samples())
    wanted_tokens = plan.epochs * ShardFolder(plan.data_folder).num_written
    wanted_seconds = None if plan.hours is None else plan.hours * 3600 * (1 - plan.data_share)
    losses = _Losses()
    last_point = training.progress.seconds

    def share(progress: checkpoint.Progress) -> float:
        return progress.tokens / wanted_tokens if wanted_seconds is None else progress.seconds / wanted_seconds

    def keep() -> None:
        nonlocal last_point
        last_point = training.progress.seconds
        evaluation = evaluate(training.draft, held_out)
        training.note(curve.point(training.progress, losses.taken(), evaluation))
        training.save(origin)
        curve.write_curve(plan.out, training.progress.curve)
        save(training.draft, plan.draft_folder, dataclasses.asdict(training.progress))
        console.print(
            f"{training.progress.tokens:,} tokens: agreement {evaluation.greedy_agreement:.3f}, top 3 "
            f"{evaluation.top3_agreement:.3f}, overlap {evaluation.overlap:.3f}, coupled "
            f"{evaluation.coupled_acceptance:.3f}, {evaluation.greedy_tokens[4]:.2f} tokens a round at K = 4",
            highlight=False,
        )

    if not training.progress.curve:
        keep()
    with _bar(console) as bar:
        task = bar.add_task("training", total=1.0, note="")

        bar.update(task, completed=share(training.progress))

        def on_step(progress: checkpoint.Progress, loss: float) -> None:
            losses.values.append(loss)
            rate = progress.tokens / progress.seconds
            note = f"{progress.tokens:,} tokens, {rate:.0f} tok/s, loss {loss:.3f}"
            bar.update(task, completed=min(share(progress), 1.0), note=note)
            if progress.seconds - last_point >= 60 * plan.evaluate_every_minutes:
                keep()

        training.run(lambda progress: stop.wanted or share(progress) >= 1.0, share, on_step)
    if losses.values:
        keep()


@contextmanager
def _stopping(stop: _Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop`; a second Ctrl-C interrupts at once."""

    def ask(number: int, frame: object) -> None:
        if stop.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.wanted = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
