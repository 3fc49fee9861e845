"""The command's errors, each before any work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distill.__main__ import app


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--layers", "1,b"), '--layers is "1,b"'),
        (("--hours", "0"), "--hours is 0; it must be positive"),
        (("--epochs", "-1"), "--epochs is -1; it must be positive"),
        (("--draft-vocab", "3"), "--draft-vocab is 3; it must be at least 32"),
        (("--writers", "0"), "--writers is 0; it must be at least 1"),
        (("--layers", "1", "--start", "x"), "--layers and --start exclude each other"),
        (("--answer-tokens", "500"), "--answer-tokens is 500; with a prompt of 64 tokens that is more than the"),
        (("--dtype", "float8"), "dtype 'float8' is unknown"),
        (("--prompts", "/nonexistent"), "--prompts /nonexistent cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_the_flag_and_its_value(
    flags: tuple[str, ...], message: str, target: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["--target", str(target), "--out", str(tmp_path / "out"), *flags])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_in_use_needs_resume(target: Path, tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    result = CliRunner().invoke(app, ["--target", str(target), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty; go on with --resume" in result.stderr


def test_a_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--target", "/nonexistent/model", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "no model at /nonexistent/model" in result.stderr
