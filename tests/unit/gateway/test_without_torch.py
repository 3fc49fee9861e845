"""The gateway's environment has no torch, and that of a client nothing of a service's."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "numpy", "transformers", "safetensors"}
OF_SERVICES = HEAVY | {"tokenizers", "starlette", "uvicorn", "prometheus_client", "grpc_health", "grpc_reflection"}

# Fails on import of a blocked package as if it were not installed.
PROGRAM = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import {modules}
print(*sorted(set(name.partition(".")[0] for name in sys.modules) & {blocked!r}))
"""


@pytest.mark.parametrize(
    ("modules", "blocked"),
    [("gateway.__main__, saguaro.cli, saguaro.cli.up", HEAVY), ("saguaro.client", OF_SERVICES)],
    ids=["gateway and command line", "client"],
)
def test_it_runs_where_these_packages_are_not_installed(modules: str, blocked: set[str]) -> None:
    program = PROGRAM.format(modules=modules, blocked=blocked)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.strip()) == (0, ""), ended.stderr


def closure(requirements: list[str]) -> set[str]:
    """Names of everything that pip would install for them here."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        name = wanted.name.lower().replace("_", "-")
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(text) for text in metadata.requires(wanted.name) or ()]
    return found


def test_installing_client_or_gateway_brings_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    gateway = closure([*project["dependencies"], *project["optional-dependencies"]["gateway"]])
    assert {"grpcio", "tokenizers", "prometheus-client"} <= gateway
    assert not gateway & {"torch", "transformers", "numpy"}
    assert not closure(project["dependencies"]) & {"torch", "tokenizers", "starlette", "prometheus-client"}
