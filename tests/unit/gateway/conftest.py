"""Folders that are written once, and stores that gateways share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.gateway.redis_server import running_redis
from tests.unit.gateway.text_folder import write_text_folder


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("text"))


@pytest.fixture(params=["sqlite", "redis"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The setting `session_store` of several gateways."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path}/s.db"
    else:
        with running_redis(tmp_path) as url:
            yield url


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "redis"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite":
            return f"sqlite://{tmp_path}/sessions.db"
        case "redis":
            return str(request.getfixturevalue("redis_url"))
    return "memory"
