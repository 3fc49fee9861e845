"""The command's errors, each before any work."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from distill import session
from distill.__main__ import app
from distill.checkpoint import Progress, State
from distill.plan import DistillPlan
from saguaro.errors import ConfigurationError


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


def test_resume_with_nothing_to_go_on_with_is_refused(target: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--target", str(target), "--out", str(tmp_path / "typo"), "--resume"])
    assert result.exit_code == 2
    assert "--resume goes on where --out was left, but there is no folder" in result.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"layers": (0, 1)}, r"--layers is \[0, 1\], but the training in .* began with \[0\]"),
        ({"start": "other"}, "--start is other, but the training in .* began with the default"),
        ({"draft_vocab": 64}, "--draft-vocab is 64, but the training in .* began with 32"),
    ],
)
def test_another_shape_than_the_training_began_with_is_refused(
    asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    origin = {"target": "t", "layers": [0], "start": None, "token_ids": list(range(32))}
    state = State(Progress(), {}, {}, origin)
    with pytest.raises(ConfigurationError, match=message):
        session._draft(DistillPlan("t", tmp_path, **asked), state)
