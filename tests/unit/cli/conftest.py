"""Fakes in the place of the services."""

from __future__ import annotations

from pathlib import Path

import pytest

from saguaro.cli import roles

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fake_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children start with the fake; PYTHONPATH, since they do not search the current folder."""
    for role in roles.PACKAGES:
        monkeypatch.setitem(roles.PACKAGES, role, "tests.unit.cli.fake_service")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
