"""What the gateway may cost, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In a process of its own: it pins itself to a core.
PROGRAM = "import json; from bench.gateway_overhead import measured; print(json.dumps(measured(10)))"


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the gateway needs a core to itself")
def test_the_gateway_adds_3_ms_to_the_first_token_0_3_ms_to_a_commit_and_relays_2000_tokens_a_second() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(ended.stdout.splitlines()[-1])
    print(figures)
    assert figures["one_stream"]["ttft_ms_added"] <= 3.0
    assert figures["one_stream"]["commit_ms_added"] <= 0.3
    for runs in ("runs_of_1", "runs_of_4"):
        assert figures[runs]["tokens_per_second"] >= 2000
        assert figures[runs]["gateway_cpu_share"] < 1.0
