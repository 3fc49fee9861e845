"""`saguaro bench --quick --json` on the demo pair, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest


@pytest.mark.slow
def test_a_quick_bench_ends_within_a_minute_and_compares_everything() -> None:
    started = time.monotonic()
    output = subprocess.run(
        [sys.executable, "-m", "saguaro.cli", "bench", "--quick", "--json"],
        capture_output=True, text=True, timeout=180, check=True,
    ).stdout  # fmt: skip
    took = time.monotonic() - started
    document = json.loads(output)
    assert set(document["ratios"]) == {"ssd_over_sd", "ssd_over_plain", "ssd_over_assisted", "hit_round_over_forward"}
    assert all(value > 0 for value in document["ratios"].values())
    assert document["ratios"]["hit_round_over_forward"] >= 1
    assert 0 < document["hit_rate"] <= 1
    assert 0 < document["acceptance_rate"] <= 1
    for mode in ("plain", "sd", "ssd"):
        assert document["measured"][mode] > 0
        assert document["predicted"][mode] > 0
    assert document["measured"]["transformers_assisted"] > 0
    assert took < 60
