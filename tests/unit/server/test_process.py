"""Settings, placement and exit codes around a service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from saguaro.errors import ConfigurationError
from saguaro.server import apply_placement


def placed(cores: str | None, threads: int | None) -> str:
    """What a process of its own says after placing itself."""
    program = (
        "import os; from saguaro.server import apply_placement; "
        f"count = apply_placement({cores!r}, {threads!r}); "
        "print(count, sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'])"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_pinned_process_runs_on_its_cores_with_a_thread_a_core_or_as_told() -> None:
    core = min(os.sched_getaffinity(0))
    assert placed(str(core), None) == f"1 [{core}] 1 1"
    assert placed(str(core), 3) == f"3 [{core}] 3 3"


def test_an_unpinned_process_has_a_thread_for_each_core_that_it_may_use() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert placed(None, None) == f"{len(cores)} {cores} {len(cores)} {len(cores)}"


def test_cores_that_the_machine_lacks_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"--cores 9999: core 9999 is not available; available are"):
        apply_placement("9999", None)


def test_a_second_signal_ends_a_drain_at_once() -> None:
    program = (
        "import asyncio, os, signal\n"
        "from saguaro.config import GatewaySettings\n"
        "from saguaro.server import serve\n"
        "async def on_drain():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.Event().wait()\n"
        "async def ready():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "asyncio.run(serve(GatewaySettings(port=0), lambda server: [], role='x', ready=ready, on_drain=on_drain))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60)
    assert done.returncode == 128 + signal.SIGTERM


def run_gateway(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gateway", *flags], capture_output=True, text=True, timeout=60)


def test_a_taken_port_ends_the_process_with_code_1_and_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_gateway("--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "gateway cannot listen on 127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_tokenizer_folder_ends_the_process_at_once() -> None:
    done = run_gateway("--port", "0", "--tokenizer", "/no/such/model")
    assert done.returncode == 1
    assert "no folder for --tokenizer /no/such/model" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_settings_end_the_process_with_code_2() -> None:
    done = run_gateway("--port", "-5")
    assert done.returncode == 2
    assert done.stderr == "saguaro gateway: --port is '-5': input should be greater than or equal to 0\n"
