"""`saguaro distill` as a user runs it: stopped, resumed, and its draft in a trio."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Client
from tests.integration.prompts import chat
from tests.integration.speculating import await_speculation
from tests.tiny_models import write_tiny_model

COMMAND = [sys.executable, "-m", "saguaro.cli", "distill"]
FLAGS = (
    *("--tokens", "60000", "--draft-vocab", "200", "--writers", "64", "--answer-tokens", "96", "--dtype", "float32"),
    *("--learning-rate", "2e-3", "--held-out", "48", "--evaluate-every-minutes", "0.1"),
)


def points(out: Path) -> list[dict[str, float]]:
    if not (out / "curve.csv").is_file():
        return []
    with (out / "curve.csv").open() as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stopped_distillation_goes_on_learns_and_its_draft_serves_in_the_trio(tmp_path: Path) -> None:
    target = write_tiny_model(tmp_path / "target", seed=1, layers=4)
    out = tmp_path / "out"
    flags = [*COMMAND, "--target", str(target), "--out", str(out), *FLAGS, "--epochs", "12"]

    first = subprocess.Popen(flags, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while len(points(out)) < 3 and first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=120)
    assert first.returncode == 130, told
    assert "--resume" in told
    stopped = points(out)

    subprocess.run([*flags, "--resume"], check=True, timeout=500)
    curve = points(out)
    assert curve[: len(stopped)] == stopped
    assert curve[-1]["tokens"] > stopped[-1]["tokens"]
    assert curve[-1]["loss"] < stopped[1]["loss"]
    # Half of a target with random weights: more than 0.1 is not to be had by any training.
    assert curve[-1]["greedy_agreement"] > curve[0]["greedy_agreement"] + 0.07
    print(f"greedy agreement {curve[0]['greedy_agreement']} -> {curve[-1]['greedy_agreement']}")

    always = ["--policy", "fixed:4,16,inf", "--just-in-time-ms", "10000"]
    with Trio(target=str(target), draft=str(out / "draft"), verifier_flags=always) as trio:
        await_speculation(trio)
        with Client(trio.gateway_address) as client:
            for options in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "acceptance": "rejection"}):
                answer = client.generate(chat("Why?"), max_tokens=64, **options).finish()
                assert answer.speculation.num_draft_tokens > 0
                if "acceptance" not in options:
                    plain = client.generate(chat("Why?"), max_tokens=64, speculation=False, **options).finish()
                    assert plain.token_ids == answer.token_ids
