from pathlib import Path

import pytest
import torch

from distill.shards import Sample, ShardFolder
from distill.writing import Job, written
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from tests.tiny_models import EOS_ID, write_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("target"), seed=1, layers=4, hidden=32)


@pytest.fixture(scope="session")
def samples(target: Path) -> list[Sample]:
    """Greedy and random texts of the target, in turn."""
    runner = tiny_runner(target)
    jobs = [Job((5 + index, 7), float(index % 2), 24) for index in range(16)]
    return [sample for _, sample in written(runner, iter(jobs), (EOS_ID,), batch=8, seed=0)]


@pytest.fixture
def shards(samples: list[Sample], tmp_path: Path) -> ShardFolder:
    folder = ShardFolder(tmp_path / "data")
    folder.append(samples)
    return folder


def tiny_runner(folder: Path) -> ModelRunner:
    model = load_model(str(folder), dtype="float32", device="cpu").model
    return ModelRunner(model, num_blocks=128, block_size=4)
