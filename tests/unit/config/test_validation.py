"""Sampling parameters and model paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from saguaro import model_paths
from saguaro.errors import InvalidRequest
from saguaro.types import Constraint, ConstraintKind, SamplingParams
from saguaro.validation import validate_sampling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", value) for value in (float("nan"), float("inf"), float("-inf"), -0.001, 100.5)),
        *(("top_p", value) for value in (0.0, -1.0, 1.0001, float("nan"), float("inf"))),
        *(("top_k", value) for value in (-1, 2**32)),
        *(("seed", value) for value in (-1, 2**64)),
        *(("choice", value) for value in (-1, 2**32)),
    ],
)
def test_a_parameter_out_of_bounds_is_refused_by_its_name_and_value(field: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field} is {value}") as caught:
        validate_sampling(SamplingParams(**{field: value}))  # type: ignore[arg-type]
    assert caught.value.field == f"sampling.{field}"


@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(), SamplingParams(100.0, 1.0, 2**32 - 1, 2**64 - 1, 2**32 - 1), SamplingParams(0.0, 1e-9)],
)
def test_parameters_at_their_bounds_are_taken(sampling: SamplingParams) -> None:
    validate_sampling(sampling)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint(ConstraintKind.REGEX, "a" * 8193), "^sampling.regex has 8193 bytes; at most 8192"),
        (Constraint(ConstraintKind.GRAMMAR, ""), "^sampling.grammar is empty"),
        (Constraint(ConstraintKind.JSON_SCHEMA, "3"), "^sampling.json_schema is a JSON int"),
        (Constraint(ConstraintKind.JSON_SCHEMA, "{,}"), "^sampling.json_schema is not JSON"),
    ],
)
def test_a_constraint_that_no_service_need_compile_to_refuse_is_refused_at_the_door(
    constraint: Constraint, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        validate_sampling(SamplingParams(constraint=constraint))
    assert caught.value.field == message.split()[0].removeprefix("^")


def test_specs_resolve_to_folders_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGUARO_CACHE", str(tmp_path))
    assert model_paths.resolve_folder("demo-target") is None
    model_paths.demo_target_folder().mkdir(parents=True)
    assert model_paths.resolve_folder("demo-target") == tmp_path / "models" / "smollm2-135m-instruct-gguf-0.1.2"
    draft = model_paths.resolve_folder("demo-draft")
    assert draft is not None
    assert (draft / "config.json").is_file()
    assert model_paths.resolve_folder(str(tmp_path)) == tmp_path
    assert model_paths.resolve_folder(str(tmp_path / "none")) is None


def test_a_hub_id_resolves_to_the_snapshot_of_its_main_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert model_paths.resolve_folder("owner/model") is None
    repository = tmp_path / "models--owner--model"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc\n")
    assert model_paths.resolve_folder("owner/model") == repository / "snapshots" / "abc"


def test_only_what_can_be_nothing_else_is_a_path() -> None:
    for spec in ("/models/x", "./x", "~/x", "a/b/c"):
        assert model_paths.is_path(spec)
    for spec in ("demo-target", "owner/model", "gpt2"):
        assert not model_paths.is_path(spec)


def test_the_served_name_is_the_last_part() -> None:
    assert model_paths.served_name("/models/tiny/") == "tiny"
    assert model_paths.served_name("owner/model") == "model"
    assert model_paths.served_name("demo-target") == "demo-target"
