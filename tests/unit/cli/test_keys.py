"""`saguaro keys`, and the file it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from saguaro.cli.keys import keys_app
from saguaro.errors import ConfigurationError
from saguaro.keys import hash_of, read_keys


def run(file: Path, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(keys_app, [command, *arguments, "--file", str(file)])


def test_a_key_is_printed_once_and_its_hash_is_kept_for_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    added = run(file, "add", "ann", "--requests-per-minute", "60", "--model", "demo", "--expires-in-days", "1")
    assert added.exit_code == 0
    (key,) = added.stdout.split()
    (record,) = read_keys(file)
    assert (record.name, record.requests_per_minute, record.models) == ("ann", 60, ("demo",))
    assert record.tokens_per_minute is record.concurrent_answers is None
    assert record.sha256 == hash_of(key)
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_keys_differ_are_listed_with_their_limits_and_removed_by_name(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = {run(file, "add", name).stdout for name in ("ann", "bob")}
    assert len(keys) == 2  # equal ones: odds of 2**-256
    listed = run(file, "list").stdout
    assert all(word in listed for word in ("ann", "bob", "all", "never"))
    assert run(file, "remove", "ann").exit_code == 0
    assert [record.name for record in read_keys(file)] == ["bob"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("add", "ann"), 'has a key "ann" already'),
        (("remove", "bob"), 'has no key "bob"; it has ann'),
    ],
)
def test_a_name_that_does_not_fit_is_one_sentence_and_leaves_the_file(
    tmp_path: Path, command: tuple[str, str], message: str
) -> None:
    file = tmp_path / "keys.json"
    run(file, "add", "ann")
    before = file.read_text()
    refused = run(file, *command)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert file.read_text() == before


HASH = "0" * 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        ("[]", "object"),
        (json.dumps({"keys": [{"name": "ann"}]}), "keys.0.sha256: field required"),
        (json.dumps({"keys": [{"name": "ann", "sha256": "sgr_secret"}]}), "keys.0.sha256"),
        (json.dumps({"keys": [{"name": "ann", "sha256": HASH, "rpm": 5}]}), "keys.0.rpm"),
        (json.dumps({"keys": [{"name": "ann", "sha256": HASH, "requests_per_minute": 0}]}), "greater than"),
        (json.dumps({"keys": [{"name": "ann", "sha256": HASH, "expires_at": "2030-01-01T00:00:00"}]}), "timezone"),
        (json.dumps({"keys": [{"name": "ann", "sha256": HASH}] * 2}), 'the name "ann" stands for two keys'),
    ],
)
def test_a_broken_file_is_one_sentence_with_the_place_and_without_what_stands_there(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_keys(file)
    assert message.lower() in str(refused.value).lower()
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_keys_that_are_added_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    # Slow between reading and writing, so that all of them meet there.
    program = (
        "import sys, time, saguaro.keys as keys; write = keys.write_keys; "
        "keys.write_keys = lambda *given: (time.sleep(0.5), write(*given)); "
        "from saguaro.cli.keys import keys_app; keys_app(['add', sys.argv[1], '--file', sys.argv[2]])"
    )
    names = ["ann", "bob", "cy"]
    adding = [subprocess.Popen([sys.executable, "-c", program, name, str(file)]) for name in names]
    assert [process.wait(60) for process in adding] == [0, 0, 0]
    assert sorted(record.name for record in read_keys(file)) == names
