from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny_models import noisy_copy, write_tiny_model


@dataclass(frozen=True)
class TinyModels:
    """A target, a draft that agrees with it about two times in three, and one that never does."""

    target: Path
    draft: Path
    random_draft: Path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    folder = tmp_path_factory.mktemp("tiny-models")
    target = write_tiny_model(folder / "target", seed=1, max_positions=128)
    return TinyModels(
        target=target,
        draft=noisy_copy(target, folder / "draft", noise=0.03),
        random_draft=write_tiny_model(folder / "random-draft", seed=2, layers=1, max_positions=128),
    )
