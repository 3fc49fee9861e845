"""Folders that are written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.gateway.text_folder import write_text_folder


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("text"))
