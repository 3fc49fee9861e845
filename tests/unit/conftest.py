"""For all unit tests: threads, and certificates of two authorities that do not know each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from saguaro.cli.certs import write_certificates

# Before anything loads torch: the threads of two workers on two cores would spend their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
