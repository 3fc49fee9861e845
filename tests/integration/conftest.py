from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from tests.integration.emulated import emulated
from tests.integration.fortress import Fortress, running_fortress
from tests.integration.speculating import await_speculation
from tests.tiny_models import noisy_copy, write_tiny_model


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, answers long enough to be interrupted."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "target", seed=1, max_positions=4096)


@pytest.fixture(scope="session")
def tiny_draft(tiny_target: Path) -> Path:
    return noisy_copy(tiny_target, tiny_target.parent / "draft", noise=0.03)


@pytest.fixture(scope="session")
def tiny_trio(tiny_target: Path, tiny_draft: Path) -> Iterator[Trio]:
    """The tiny pair, as three processes that always speculate, whatever else the machine does."""
    always = ["--policy", "fixed:4,16,inf", "--just-in-time-ms", "10000"]
    with Trio(target=str(tiny_target), draft=str(tiny_draft), verifier_flags=always) as running:
        await_speculation(running)
        yield running


@pytest.fixture(scope="session")
def demo_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """The embedded pair, as three processes."""
    with Trio(log_folder=tmp_path_factory.mktemp("demo-logs")) as trio:
        yield trio


@pytest.fixture(scope="session")
def emulated_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Emulated devices that speculate; sessions are in a file, and a client that is cut off may come back."""
    folder = tmp_path_factory.mktemp("emulated")
    flags = ["--session-store", f"sqlite://{folder}/sessions.db", "--resume-seconds", "30"]
    with emulated(folder, gateway_flags=flags) as trio:
        await_speculation(trio)
        yield trio


@pytest.fixture(scope="session")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """Emulated, with mTLS and keys everywhere and few places."""
    with running_fortress(tmp_path_factory.mktemp("fortress")) as running:
        yield running
