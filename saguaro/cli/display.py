"""Shows what a trio does while it starts and serves: bars on a terminal, plain lines elsewhere. Writes to stderr."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from saguaro import progress

_TENTHS = 10


class Display:
    """`on_progress` and `on_line` may be called on any thread."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        """`quiet` hides the services' own lines; their starts are shown."""
        self._console = console
        self._quiet = quiet
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, int | None]] = {}
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("{task.fields[role]:<11}"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_bars()

    def stop_bars(self) -> None:
        """The start is over."""
        self._bars.stop()

    def on_progress(self, step: progress.Progress) -> None:
        """One step of a start."""
        with self._lock:
            if self._console.is_terminal:
                self._show_bar(step)
            else:
                self._show_line(step)

    def on_line(self, role: str, line: str) -> None:
        """One line that a service wrote."""
        if not self._quiet:
            self.say(line if role in line else f"{role}: {line}")

    def say(self, text: str) -> None:
        """A line of our own; services' text is no markup."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show_bar(self, step: progress.Progress) -> None:
        if step.role not in self._tasks:
            self._tasks[step.role] = self._bars.add_task("", role=step.role, total=None)
        total, completed = (None, 0.0) if step.fraction is None else (1.0, step.fraction)
        self._bars.update(self._tasks[step.role], description=step.label, total=total, completed=completed)

    def _show_line(self, step: progress.Progress) -> None:
        # A line for each label and each tenth of it, not for each message.
        tenth = None if step.fraction is None else int(step.fraction * _TENTHS)
        if self._last.get(step.role) == (step.label, tenth):
            return
        self._last[step.role] = (step.label, tenth)
        share = "" if step.fraction is None else f" {step.fraction:.0%}"
        self.say(f"{step.role}: {step.label}{share}")
