"""A real Redis or Valkey server for tests, a child of the test's process on a free port."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_BINARIES = ("valkey-server", "redis-server")
_START_SECONDS = 10.0


def free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        return int(item.getsockname()[1])


@contextlib.contextmanager
def running_redis(folder: Path, password: str = "") -> Iterator[str]:
    """Its URL. Keeps nothing on disk; ends with the block. Skips the test where the machine has no server."""
    binary = next(filter(None, map(shutil.which, _BINARIES)), None)
    if binary is None:
        pytest.skip(f"none of {', '.join(_BINARIES)} is installed (Debian: apt-get install redis-server)")
    port = free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    if password:
        command += ["--requirepass", password]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_until_it_listens(process, port)
            yield f"redis://{f':{password}@' if password else ''}127.0.0.1:{port}/0"
        finally:
            process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, f"the server ended with code {process.returncode}"
        assert time.monotonic() < deadline, f"the server does not listen after {_START_SECONDS} s"
        time.sleep(0.02)
