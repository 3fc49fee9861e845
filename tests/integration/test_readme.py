"""README's blocks as typed by somebody who has only the page: top to bottom, each line must do what it says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.source_copy import ROOT, copy_source

# Lines that are not run: a test of the tests, hours of work, or a placeholder of the reader's own model. Of ours the
# flags are tried all the same.
_NOT_RUN = re.compile(r"^make test|\bDIR\b|^saguaro (bench (?!--quick)|distill)")
_SERVES = re.compile(r"^(\w+=\S+ )*saguaro (up|verifier|speculator|gateway)\b")
_LINE_SECONDS = 600


def blocks() -> list[tuple[str, str]]:
    """Language ("" is a shell) and text of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def lines_of(block: str) -> Iterator[str]:
    """Commands: what a backslash or a here-document continues is one of them."""
    kept = ""
    for line in block.splitlines():
        kept += line + "\n"
        if line.endswith("\\") or ("<<'END'" in kept and line != "END"):
            continue
        yield kept.strip()
        kept = ""
    assert not kept


class Terminal:
    """Shells that share an environment, as a reader's terminals do after the same first line in each."""

    def __init__(self, folder: Path) -> None:
        path = [str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        self._environment = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "HOME", "LANG"))}
        self._environment |= {"PATH": os.pathsep.join(path), "SAGUARO_CACHE": str(folder / "cache")}
        self._folder = folder
        self._serving: list[subprocess.Popen[bytes]] = []
        self._typed: dict[str, str] = {}  # what the page cannot know, as the reader has seen it

    def type(self, line: str) -> str:
        """What the command says; AssertionError where it fails."""
        for placeholder, value in self._typed.items():
            line = re.sub(placeholder, value, line)
        if _NOT_RUN.search(line):
            if line.startswith("make"):
                return ""
            line = f"{line.partition('#')[0].partition('>')[0]} --help"
        elif _SERVES.search(line):
            return self._serve(line)
        state = self._folder / "environment.json"
        keep = f"python3 -c 'import json, os; json.dump(dict(os.environ), open({json.dumps(str(state))}, \"w\"))'"
        done = subprocess.run(
            ["bash", "-e", "-c", f"{line}\n{keep}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LINE_SECONDS,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert '"error"' not in done.stdout, f"{line}\n{done.stdout}"
        self._environment = json.loads(state.read_text())
        self._see(line, done.stdout)
        return done.stdout

    def _see(self, line: str, said: str) -> None:
        if line.startswith("saguaro keys add"):
            self._typed[r"\bKEY\b"] = said.strip()
        if "/v1/sessions -H" in line:
            self._typed[r"3f0c\.\.\."] = json.loads(said)["id"]

    def _serve(self, line: str) -> str:
        # "In place of the one that runs", but the three roles of a deployment run side by side.
        role = line.partition("saguaro ")[2].split()[0]
        if role == "up" or any(
            "up" in item.args[-1].split() or role in item.args[-1].split() for item in self._serving
        ):
            self.close()
        log = self._folder / f"{len(list(self._folder.glob('*.log')))}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {line.partition('#')[0]}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._serving.append(process)
        deadline = time.monotonic() + _LINE_SECONDS
        is_up = "ask it:" if role == "up" else f"{role} serving on"
        while is_up not in log.read_text():
            assert process.poll() is None, f"{line}\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{line}\n{log.read_text()}"
            time.sleep(0.1)
        return log.read_text()

    def close(self) -> None:
        """Ctrl-C in the terminals where something serves."""
        for process in self._serving:
            process.send_signal(signal.SIGINT)
        for process in self._serving:
            assert process.wait(60) == 0
        self._serving.clear()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_every_block_works_as_typed_from_top_to_bottom(tmp_path: Path) -> None:
    with contextlib.closing(Terminal(copy_source(tmp_path))) as terminal:
        for number, (language, block) in enumerate(blocks()):
            if language == "python":
                (tmp_path / f"block{number}.py").write_text(block)
                said = terminal.type(f"python block{number}.py")
                assert said.strip()
            else:
                for line in lines_of(block):
                    began = time.monotonic()
                    terminal.type(line)
                    print(f"{time.monotonic() - began:6.1f} s  {line.splitlines()[0]}")


def test_every_command_of_the_readme_is_one_that_shells_can_read() -> None:
    for language, block in blocks():
        for line in lines_of(block) if not language else ():
            subprocess.run(["bash", "-n", "-c", line], check=True)
            first = next(word for word in shlex.split(line, comments=True) if "=" not in word)
            assert first in {"make", ".", "saguaro", "curl", "cat", "python3", "client-venv/bin/saguaro"}, line
