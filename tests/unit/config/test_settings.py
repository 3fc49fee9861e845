"""Where settings come from, which source wins, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from saguaro.config import (
    SETTINGS,
    GatewaySettings,
    PolicySettings,
    ServiceSettings,
    SpeculatorSettings,
    VerifierSettings,
    environment_name,
    flag_name,
    load_settings,
    parse_cores,
    policy_document,
    read_settings,
)
from saguaro.errors import ConfigurationError
from saguaro.types import AcceptanceMode, ClassPolicy, TrafficClass, TrafficPolicy


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in SETTINGS:
        for field in kind.model_fields:
            monkeypatch.delenv(environment_name(kind, field), raising=False)
    monkeypatch.delenv("SAGUARO_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "saguaro.toml"
    path.write_text("[verifier]\nlookahead = 1\nbudget = 11\nmax_running = 21\n[gateway]\nport = 7000\n")
    return path


def test_flags_win_over_environment_over_file_over_defaults(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_VERIFIER_BUDGET", "12")
    monkeypatch.setenv("SAGUARO_VERIFIER_LOOKAHEAD", "2")
    read = read_settings(VerifierSettings, ["--config", str(file), "--lookahead", "3"])
    assert (read.lookahead, read.budget, read.max_running, read.port) == (3, 12, 21, 50061)


def test_the_file_may_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_CONFIG", str(file))
    assert read_settings(GatewaySettings, []).port == 7000
    assert read_settings(SpeculatorSettings, []).port == 50071


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_setting_can_be_given_by_flag_and_by_environment(
    kind: type[ServiceSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = kind().model_dump()
    for name, value in defaults.items():
        # Each default is valid, and reading it back from text must give it again.
        text = "none" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)
        assert read_settings(kind, [flag_name(name), text]).model_dump() == defaults
        monkeypatch.setenv(environment_name(kind, name), text)
    assert read_settings(kind, []).model_dump() == defaults


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--kv-tokenz", "64"], r"unknown flag --kv-tokenz; did you mean --kv-tokens\?"),
        (["--kv-tokens=9"], "--kv-tokens is '9': input should be greater than or equal to 64"),
        (["--lookahead", "17"], "--lookahead is '17': input should be less than or equal to 16"),
        (["--port", "x"], "--port is 'x': input should be a valid integer"),
        (["--cores", "3-1"], "--cores is '3-1': .*counts down"),
        (["--device", "tpu"], "--device is 'tpu'"),
        (["--port"], "--port: expected one argument"),
        (["--config", "/no/such/file"], "cannot read the settings file /no/such/file: No such file"),
    ],
)
def test_a_bad_flag_is_one_sentence_with_the_name_the_value_and_the_bound(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_settings(VerifierSettings, argv)


def test_an_unknown_variable_is_refused_with_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_VERIFIER_LOOKAHED", "2")
    # Also by the other services: whoever misspells a name wants to know.
    for kind in SETTINGS:
        with pytest.raises(ConfigurationError, match=r"LOOKAHED; did you mean SAGUARO_VERIFIER_LOOKAHEAD\?"):
            read_settings(kind, [])


def test_the_cache_variable_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_CACHE", "/somewhere")
    assert read_settings(GatewaySettings, []) == GatewaySettings()


def test_none_turns_http_off_in_words() -> None:
    assert GatewaySettings().http_port == 8000
    assert read_settings(GatewaySettings, ["--http-port", "none"]).http_port is None


def test_a_bad_variable_is_named_as_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_GATEWAY_PORT", "70000")
    with pytest.raises(ConfigurationError, match="SAGUARO_GATEWAY_PORT is '70000'"):
        read_settings(GatewaySettings, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[verifier]\nbudgett = 3\n", r"unknown setting budgett in \[verifier\] of .*; did you mean budget\?"),
        ("[verifyer]\nbudget = 3\n", r"unknown table \[verifyer\].*did you mean verifier\?"),
        ("budget = 3\n", r"unknown table \[budget\]"),
        ("[gateway]\nprot = 3\n", r"unknown setting prot in \[gateway\].*did you mean port\?"),
        ("[verifier\n", "is not TOML"),
        ('[verifier]\nbudget = "many"\n', "budget is 'many'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "saguaro.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_settings(VerifierSettings, ["--config", str(path)])


def test_a_main_program_ends_with_code_2_and_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_settings(VerifierSettings, ["--bogus"])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("saguaro verifier: unknown flag --bogus")


@pytest.mark.parametrize("kind", SETTINGS)
def test_help_tells_every_field_with_default_variable_and_meaning(
    kind: type[ServiceSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load_settings(kind, ["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in kind.model_fields.items():
        assert flag_name(name) in text
        assert environment_name(kind, name) in text
        assert field.description
        assert field.description in text


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        GatewaySettings().port = 1  # type: ignore[misc]


def test_cores_are_numbers_and_ranges() -> None:
    assert parse_cores("0-3,6") == (0, 1, 2, 3, 6)
    assert parse_cores("2") == (2,)
    for text in ("", "a", "1-", "-1", "3-1", "1,,2"):
        with pytest.raises(ValueError, match="cores are"):
            parse_cores(text)


@pytest.mark.parametrize(("text", "scale"), [("0", 0.0), ("0.5", 0.5), ("auto", "auto")])
def test_c_is_a_number_or_auto(text: str, scale: float | str) -> None:
    assert read_settings(VerifierSettings, ["--cached-scale", text]).cached_scale == scale


@pytest.mark.parametrize(("text", "limit"), [("1.5", "less than or equal to 1"), ("often", "'auto'")])
def test_another_c_is_refused_by_its_limit(text: str, limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--cached-scale is '{text}'.*{limit}"):
        read_settings(VerifierSettings, ["--cached-scale", text])


POLICY = """
[gateway.policy.latency]
break_even_batch = inf
max_lookahead = 6
[gateway.policy.throughput]
acceptance = "rejection"
"""


def test_a_policy_is_written_in_tables_of_the_file_or_as_json(tmp_path: Path) -> None:
    path = tmp_path / "saguaro.toml"
    path.write_text(POLICY)
    by_file = read_settings(GatewaySettings, ["--config", str(path)]).policy
    assert by_file.by_class() == {
        TrafficClass.LATENCY: ClassPolicy(6, math.inf, None),
        TrafficClass.THROUGHPUT: ClassPolicy(None, None, AcceptanceMode.REJECTION),
    }
    text = '{"latency": {"break_even_batch": "inf", "max_lookahead": 6}, "throughput": {"acceptance": "rejection"}}'
    assert read_settings(GatewaySettings, ["--policy", text]).policy == by_file
    whole = policy_document(TrafficPolicy().changed(by_file.by_class()))
    assert whole["balanced"] == {"max_lookahead": "auto", "break_even_batch": "auto", "acceptance": "auto"}
    assert TrafficPolicy().changed(PolicySettings.model_validate(whole).by_class()) == TrafficPolicy().changed(
        by_file.by_class()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", r"--policy is 'fast': is not JSON"),
        ('{"fast": {}}', r"unknown setting --policy\.fast; known are latency, balanced, throughput"),
        ('{"latancy": {}}', r"unknown setting --policy\.latancy; did you mean latency\?"),
        ('{"latency": {"max_lookahed": 1}}', r"--policy\.latency\.max_lookahed; did you mean max_lookahead\?"),
        ('{"latency": {"max_lookahead": 17}}', r"--policy\.latency\.max_lookahead is 17: .*less than or equal to 16"),
        ('{"latency": {"break_even_batch": -1}}', r"--policy\.latency\.break_even_batch is -1: .*greater than or"),
        ('{"latency": {"break_even_batch": "nan"}}', r"--policy\.latency\.break_even_batch is 'nan'"),
        ('{"latency": {"acceptance": "greedy"}}', r"--policy\.latency\.acceptance is 'greedy': .*'coupled' or"),
    ],
)
def test_a_fault_of_a_policy_names_its_field(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_settings(GatewaySettings, ["--policy", text])
