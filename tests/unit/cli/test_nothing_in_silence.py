"""No command drops a flag, misreads a name or overwrites a file without a word."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from bench.__main__ import app as bench_app
from saguaro import __version__
from saguaro.cli import app, extras
from saguaro.client import AsyncClient, Client
from saguaro.client.requests import build_request
from saguaro.errors import ConfigurationError, InvalidRequest
from tests.unit.cli.conftest import ROOT

TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def said_by(*arguments: str, code: int = 2, of: Any = app, **variables: str) -> str:
    """All words of a command that ends with this code, with single spaces; rich breaks lines and draws boxes."""
    result = CliRunner().invoke(of, arguments, env={"COLUMNS": "400", **variables})
    fault = str(result.exception) if isinstance(result.exception, ConfigurationError) else ""
    assert result.exit_code == (1 if fault else code), result.output
    return " ".join((result.output + fault).split())


def test_the_version_is_said() -> None:
    assert said_by("--version", code=0) == f"saguaro {__version__}"


def test_a_second_authority_does_not_replace_the_first(tmp_path: Path) -> None:
    said_by("certs", str(tmp_path), code=0)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(before) == 9
    assert f"{tmp_path} has ca.pem, " in said_by("certs", str(tmp_path))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / "ca.pem").unlink()
    assert f"{tmp_path} has gateway.pem, " in said_by("certs", str(tmp_path))
    assert not (tmp_path / "ca.pem").exists()


@pytest.mark.parametrize("flag", ["--target", "--draft", "--emulate", "--threads", "--lookahead", "--budget"])
@pytest.mark.parametrize("command", [("chat", "--server"), ("verify-exact", "--address")])
def test_flags_of_a_trio_are_refused_beside_a_running_gateway(command: tuple[str, str], flag: str) -> None:
    name, place = command
    assert f"{flag} would change nothing at the running gateway that {place} names" in said_by(
        name, place, "127.0.0.1:1", flag, "4"
    )


@pytest.mark.parametrize("command", ["chat", "verify-exact"])
def test_authorities_without_a_running_gateway_are_refused(command: str) -> None:
    assert "--tls-ca is for a running gateway" in said_by(command, "--tls-ca", "ca.pem")


@pytest.mark.parametrize("flags", [("--logprobs",), ("--prompt-logprobs",), ("--top-logprobs", "2")])
def test_what_only_json_shows_is_refused_without_it(flags: tuple[str, ...]) -> None:
    assert f"{flags[0]} would not be shown; they come with --json" in said_by("generate", *flags, "Hi")


@pytest.mark.parametrize("command", [("generate", "Hi"), ("policy",), ("chat", "--server", "127.0.0.1:1")])
def test_a_misspelt_variable_is_refused_by_whoever_asks_a_gateway(command: tuple[str, ...]) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "saguaro.cli", *command],
        env={"SAGUARO_API_KYE": "k", "PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    ).stderr
    assert "unknown environment variable SAGUARO_API_KYE; did you mean SAGUARO_API_KEY?" in said


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_token", "did you mean 'max_tokens'?"),
        ("Temperature", "did you mean 'temperature'?"),
        ("timeout", "did you mean 'timeout_seconds'?"),
        ("zzz", "it takes timeout_seconds, temperature, top_p"),
    ],
)
def test_a_misspelt_option_of_the_sdk_is_a_type_error_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised, Client("127.0.0.1:1") as client:
        client.generate("Hi", **{name: 3})  # type: ignore[arg-type]
    assert f"generate() got an unexpected keyword argument '{name}'; {hint}" in str(raised.value)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_the_asynchronous_client_refuses_it_alike() -> None:
    import asyncio

    async def scenario() -> None:
        async with AsyncClient("127.0.0.1:1") as client:
            await client.generate("Hi", max_token=3).finish()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="did you mean 'max_tokens'"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"type": "function", "function": {"name": "add", "paramters": {}}}, 'did you mean "parameters"?'),
        ({**TOOL, "fucntion": {}}, 'did you mean "function"?'),
        ({**TOOL, "type": "retrieval"}, "the type of a tool is 'retrieval'"),
    ],
)
def test_a_misspelt_key_of_a_tool_is_refused(tool: dict[str, Any], message: str) -> None:
    chat = [{"role": "user", "content": "Hi"}]
    build_request(chat, {"tools": [TOOL]})
    with pytest.raises(InvalidRequest) as raised:
        build_request(chat, {"tools": [tool]})
    assert message in str(raised.value)


def test_a_picture_that_cannot_be_written_is_refused_before_the_bench(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    there = tmp_path / "bench.png"
    there.write_bytes(b"mine")
    assert "is there already" in said_by("--plot", str(there), of=bench_app)
    assert there.read_bytes() == b"mine"
    assert "its name must end with one of" in said_by("--plot", str(tmp_path / "bench.txt"), of=bench_app)
    assert "there is no folder" in said_by("--plot", str(tmp_path / "no" / "bench.png"), of=bench_app)


def test_a_target_is_refused_beside_an_emulated_pair_by_the_bench_too() -> None:
    assert "no place beside --emulate" in said_by("--emulate", "qwen3-32b", "--target", "x", of=bench_app)


def test_what_an_extra_brings_is_what_pyproject_says() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in extras.MODULES.items():
        wanted = {Requirement(item).name for item in groups[extra]} - {"saguaro-ssd"}
        owners = importlib.metadata.packages_distributions()
        assert {owners[module][0].replace("_", "-").lower() for module in modules} == wanted


def test_a_command_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "services", ("torch", "no_such_module"))
    for command in ("up", "demo", "verifier", "bench"):
        said = said_by(command)
        assert "needs the extra `services`, of which no_such_module is not installed" in said
        assert "pip install '.[services]'" in said
