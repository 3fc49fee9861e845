"""A forward's time is the device's, not that of launching its work, and a CPU pays nothing for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from saguaro.core.forward_time import ForwardTime
from saguaro.engine import device_time, model_runner
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.calibration import calibrate
from saguaro.engine.ragged_batch import Chunk
from tests.unit.engine.paged import make_runner

WORK_SECONDS = 0.05


def test_the_time_of_a_forward_ends_when_the_device_is_done(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, forward_time, waited = make_runner(llama), ForwardTime(), []

    def finish(device: torch.device) -> None:
        """A device that works on for a while after it was told what to do."""
        waited.append(device)
        time.sleep(WORK_SECONDS)

    monkeypatch.setattr(model_runner, "wait_for", finish)
    calibrate(runner, forward_time, rows=(1, 4))
    assert forward_time.expect_ns(1) >= WORK_SECONDS * 1e9
    assert forward_time.expect_ns(4) >= WORK_SECONDS * 1e9
    assert set(waited) == {runner.device}


def test_a_fault_that_the_device_has_later_is_the_forwards(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(llama)

    def fail(device: torch.device) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(model_runner, "wait_for", fail)
    with BlockTable(runner.block_manager) as table:
        table.reserve(1)
        chunk = Chunk.causal([1], 0, table, num_logits=1)
        with pytest.raises(RuntimeError, match="device-side assert"):
            runner.forward([chunk])


def test_only_an_accelerator_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", synchronised.append)
    device_time.wait_for(torch.device("cpu"))
    assert synchronised == []
    device_time.wait_for(torch.device("cuda:1"))
    assert synchronised == [torch.device("cuda:1")]
