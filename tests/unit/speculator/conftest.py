from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_model
from tests.unit.services.conftest import tiny

__all__ = ["tiny"]


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("lone") / "draft", seed=1, max_positions=2048)
