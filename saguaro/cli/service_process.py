"""One service as a child process: its start, its words, its end."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from saguaro.cli.roles import service_command
from saguaro.progress import Progress, parse_progress

_CHILD = Path(__file__).with_name("_child.py")
_KEPT_LINES = 12

OnLine = Callable[[str, str], None]
OnProgress = Callable[[Progress], None]


class ServiceProcess:
    """A running service. It is killed when the thread that started it, or its process, dies.

    `name` is its role, or its role and a number: "verifier-2". `on_progress` and `on_line` (name, line) are called on a
    thread of ours; lines also go to `log`, if given.
    """

    def __init__(
        self,
        name: str,
        flags: Sequence[str],
        *,
        on_line: OnLine,
        on_progress: OnProgress,
        log: Path | None = None,
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._on_progress = on_progress
        self._last_lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        command = [
            sys.executable,
            "-I",
            "-S",
            str(_CHILD),
            str(os.getpid()),
            *service_command(name.partition("-")[0], flags),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C must reach only the parent, which then ends each child in order: two signals would cut the drain.
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(log,), name=f"{name}-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """Its last lines, for a message about its death."""
        self._reader.join(timeout=1)
        return "\n".join(self._last_lines)

    def describe_end(self) -> str:
        """How it ended, as in "exit code 1" or "signal SIGKILL"."""
        code = self.exit_code
        assert code is not None, "the process runs"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal; harmless after its end."""
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether it ended within the timeout."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it now and collect it."""
        self._process.kill()
        self._process.wait()
        self.close()

    def close(self) -> None:
        """After its end: read what it left."""
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self, log: Path | None) -> None:
        assert self._process.stdout is not None
        # Appended: a restarted service goes on in the same file.
        file = None if log is None else log.open("a", buffering=1)
        try:
            for line in self._process.stdout:
                text = line.rstrip("\n")
                if file is not None:
                    file.write(line)
                progress = parse_progress(text)
                if progress is not None:
                    self._on_progress(replace(progress, role=self.name))
                else:
                    self._last_lines.append(text)
                    self._on_line(self.name, text)
        finally:
            if file is not None:
                file.close()
