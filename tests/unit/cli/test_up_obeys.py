"""`saguaro up` does what flags, variables and file say, or refuses by name; its banner says what is."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from saguaro.cli.ports import Ports
from tests.unit.cli.upping import command_line, end_of, refused, start_up


def flag(words: list[str], name: str) -> str:
    """The one that counts: the last."""
    return words[len(words) - 1 - words[::-1].index(name) + 1]


def test_ports_of_the_file_are_where_the_services_listen(tmp_path: Path) -> None:
    ports = Ports.free()
    file = tmp_path / "saguaro.toml"
    file.write_text(
        f"[verifier]\nport = {ports.verifier}\n[speculator]\nport = {ports.speculator}\n"
        f"[gateway]\nport = {ports.gateway}\nhttp_port = {ports.http}\n"
    )
    process, children, said = start_up("--config", str(file))
    try:
        for role in ("verifier", "speculator", "gateway"):
            assert f"  {role:<11} 127.0.0.1:{ports.of(role)}" in said
            socket.create_connection(("127.0.0.1", ports.of(role)), timeout=5).close()
        assert f"  OpenAI API  http://127.0.0.1:{ports.http}/v1" in said
        words = command_line(children)
        assert flag(words["gateway"], "--verifier") == f"127.0.0.1:{ports.verifier}"
        assert flag(words["verifier"], "--speculator") == f"127.0.0.1:{ports.speculator}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert end_of(process)[0] == 0


def test_a_named_port_holds_beside_ports_auto_and_flags_win_over_variables() -> None:
    http, gateway = Ports.free().http, Ports.free().gateway
    process, children, said = start_up(
        *("--ports", "auto", "--http-port", str(http)), SAGUARO_GATEWAY_PORT=str(gateway), SAGUARO_GATEWAY_HTTP_PORT="1"
    )
    try:
        assert f"  OpenAI API  http://127.0.0.1:{http}/v1" in said
        assert f"  gateway     127.0.0.1:{gateway}" in said
        assert flag(command_line(children)["gateway"], "--http-port") == str(http)
    finally:
        process.send_signal(signal.SIGTERM)
        end_of(process)


def test_a_gateway_open_to_the_network_is_said_to_be_so_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "saguaro.toml"
    file.write_text('[gateway]\nhost = "0.0.0.0"\nhttp_port = "none"\n')
    process, _, said = start_up("--ports", "auto", "--config", str(file))
    try:
        (line,) = (line for line in said if line.startswith("  gateway "))
        assert "0.0.0.0:" in line
        assert "on every address of this machine" in line
        (warning,) = (line for line in said if line.startswith("WARNING"))
        assert "anyone who reaches this machine may use it" in warning
        assert any("OpenAI API  none" in line for line in said)
        assert any("saguaro generate --address 127.0.0.1:" in line for line in said)
    finally:
        process.send_signal(signal.SIGTERM)
        end_of(process)


def test_with_keys_the_open_gateway_needs_no_warning(tmp_path: Path) -> None:
    process, _, said = start_up(
        "--ports", "auto", SAGUARO_GATEWAY_HOST="0.0.0.0", SAGUARO_GATEWAY_KEYS_FILE=str(tmp_path / "keys.json")
    )
    process.send_signal(signal.SIGTERM)
    end_of(process)
    assert not any(line.startswith("WARNING") for line in said)
    assert any("--api-key KEY" in line for line in said)


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ('[gateway]\nverifier = "far:1"', (), r"[gateway] verifier of {file} is far:1, but this trio has its own at"),
        (
            '[verifier]\nspeculator = "far:1"',
            (),
            r"[verifier] speculator of {file} is far:1, but this trio has its own",
        ),
        ('[gateway]\ntls_cert = "c.pem"', (), r"[gateway] tls_cert of {file} asks for TLS, which a trio"),
        ('[speculator]\ntarget = "a"\n[verifier]\ntarget = "b"', (), r"a trio has one target"),
        ("[verifier]\nmetrics_port = 9", ("--verifiers", "2"), r"[verifier] metrics_port of {file} is 9, which cannot"),
        ("[gateway]\nport = 7", ("--http-port", "7"), r"the gateway's port and the gateway's HTTP port are both 7"),
        ("[verifier]\nport = 65535", ("--verifiers", "2"), r"the verifier-2's port would be 65536"),
        ("[gateway]\nprot = 7", (), r"unknown setting prot in [gateway] of {file}; did you mean port?"),
        (
            "[gateway.policy.latency]\nlookahead = 7",
            (),
            r"unknown setting policy.latency.lookahead; did you mean max_lookahead?",
        ),
        ("", ("--emulate", "qwen3-32b", "--target", "x"), r"the target x has no place beside the emulated pair qwen3"),
        ("", ("--http-port", "http"), r"--http-port is 'http'"),
        ("", ("--draft", "/no/such/draft"), r"the draft /no/such/draft is no folder on this machine"),
        ("", ("--target", "./no-target"), r"the target ./no-target is no folder on this machine"),
        ("", ("--draft", "{folder}"), r"the draft {folder} holds no model: there is no config.json in it"),
    ],
)
def test_what_a_trio_cannot_do_is_refused_by_name(
    text: str, flags: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "saguaro.toml"
    file.write_text(text)
    flags = tuple(item.format(folder=tmp_path) for item in flags)
    code, said = refused("--config", str(file), *flags)
    assert (code, "Traceback" in said) == (2, False)
    assert message.format(file=file, folder=tmp_path) in said


def test_a_misspelt_variable_is_refused_and_the_key_of_clients_is_none() -> None:
    code, said = refused(SAGUARO_GATEWAY_PROT="1")
    assert (code, "did you mean SAGUARO_GATEWAY_PORT?" in said) == (2, True)
    process, _, _ = start_up("--ports", "auto", SAGUARO_API_KEY="sgr_x")
    process.send_signal(signal.SIGTERM)
    end_of(process)


def test_a_draft_that_cannot_be_loaded_is_an_error_and_not_an_undrafted_trio() -> None:
    code, said = refused("--ports", "auto", FAKE_DIES="speculator")
    assert code == 1
    assert "saguaro: the speculator ended with exit code 3\nno model at /x" in said


def test_threads_and_cores_of_the_file_win_over_the_trio_s_own_placement(tmp_path: Path) -> None:
    file = tmp_path / "saguaro.toml"
    file.write_text('[verifier]\nthreads = 3\n[speculator]\ncores = "0"\n')
    process, children, _ = start_up("--ports", "auto", "--config", str(file))
    words = command_line(children)
    process.send_signal(signal.SIGTERM)
    end_of(process)
    assert (flag(words["verifier"], "--threads"), flag(words["verifier"], "--cores")) == ("3", "none")
    assert flag(words["speculator"], "--cores") == "0"


def test_without_a_draft_the_port_of_a_speculator_may_be_another_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process, children, _ = start_up("--ports", "auto", "--draft", "none", SAGUARO_SPECULATOR_PORT=port)
        process.send_signal(signal.SIGTERM)
        end_of(process)
    assert len(children) == 2
