"""`saguaro up` as a process, its services faked: started, refused, ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.cli.conftest import ROOT

_WITH_FAKES = (
    # Who starts the tests in the background may have Ctrl-C ignored, which is inherited.
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from saguaro.cli import roles, main; "
    "roles.PACKAGES.update(dict.fromkeys(roles.PACKAGES, 'tests.unit.cli.fake_service')); "
)


def start_up(*flags: str, **variables: str) -> tuple[subprocess.Popen[str], list[int], list[str]]:
    """The process, the pids of its children once it serves, and what it said until then."""
    process = _started(flags, variables)
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if "ask it:" in line:
            break
    else:
        raise AssertionError(f"it did not come up: {said}")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, [int(pid) for pid in children], said


def refused(*flags: str, **variables: str) -> tuple[int, str]:
    """Exit code and stderr of an `up` that does not come up."""
    process = _started(flags, variables)
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, said


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what it still said."""
    assert process.stderr is not None
    _, rest = process.communicate(timeout=30)
    return process.returncode, rest


def command_line(pids: list[int]) -> dict[str, list[str]]:
    """The flags of each service, by its role; of several verifiers, of one."""
    found = {}
    for pid in pids:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        role = "speculator" if "--draft" in words else "gateway" if "--tokenizer" in words else "verifier"
        found[role] = words
    return found


def _started(flags: tuple[str, ...], variables: dict[str, str]) -> subprocess.Popen[str]:
    program = f"{_WITH_FAKES} sys.argv[1:] = {['up', *flags]!r}; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
