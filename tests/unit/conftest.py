"""Certificates of two authorities that do not know each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from saguaro.cli.certs import write_certificates


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strangers")
    write_certificates(folder)
    return folder
