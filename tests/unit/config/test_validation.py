"""Sampling parameters and model paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saguaro import model_paths
from saguaro.answers import AnswerRequest, TextPrompt
from saguaro.errors import InvalidRequest
from saguaro.types import Constraint, ConstraintKind, ModelIdentity, SamplingParams
from saguaro.validation import validate_answer_request, validate_sampled_tokens, validate_sampling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", value) for value in (float("nan"), float("inf"), float("-inf"), -0.001, 100.5)),
        *(("top_p", value) for value in (0.0, -1.0, 1.0001, float("nan"), float("inf"))),
        *(("top_k", value) for value in (-1, 2**32)),
        *(("seed", value) for value in (-1, 2**64)),
        *(("choice", value) for value in (-1, 2**32)),
        *(("min_p", value) for value in (-0.1, 1.01, float("nan"))),
        *(("repetition_penalty", value) for value in (0.0, -1.0, 100.5, float("nan"), float("inf"))),
        *(("presence_penalty", value) for value in (-2.01, 2.01, float("nan"))),
        *(("frequency_penalty", value) for value in (-2.01, 2.01, float("inf"))),
        *(("min_tokens", value) for value in (-1, 2**32)),
    ],
)
def test_a_parameter_out_of_bounds_is_refused_by_its_name_and_value(field: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field} is {value}") as caught:
        validate_sampling(SamplingParams(**{field: value}))  # type: ignore[arg-type]
    assert caught.value.field == f"sampling.{field}"


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"logit_bias": ((3, 1.0), (3, 2.0))}, "logit_bias", "token 3, twice"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias", "token -1, no token id"),
        ({"logit_bias": ((7, -100.5),)}, "logit_bias", "token 7 is -100.5; it must be from -100 to 100"),
        ({"logit_bias": tuple((i, 0.0) for i in range(1025))}, "logit_bias", "1025 tokens; it may have at most 1024"),
        ({"stop_token_ids": (5, -1)}, "stop_token_ids", "stop_token_ids is -1"),
        ({"stop_token_ids": tuple(range(129))}, "stop_token_ids", "129 tokens; it may have at most 128"),
    ],
)
def test_a_bad_element_of_a_list_is_named_with_its_bound(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        validate_sampling(SamplingParams(**changes))
    assert caught.value.field == f"sampling.{field}"


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"max_tokens": 0}, "max_tokens", "max_tokens is 0; it must be at least 1"),
        (
            {"max_tokens": 4, "sampling": SamplingParams(min_tokens=5)},
            "sampling.min_tokens",
            "at most max_tokens, .* 4",
        ),
        ({"sampling": SamplingParams(cached_scale=1.5)}, "sampling.cached_scale", "is 1.5; it must be from 0 to 1"),
        ({"sampling": SamplingParams(cached_scale=float("nan"))}, "sampling.cached_scale", "is nan"),
        ({"n": 0}, "n", "n is 0; it must be from 1 to 128"),
        ({"n": 129}, "n", "n is 129"),
        ({"n": 3, "sampling": SamplingParams(choice=2**32 - 2)}, "sampling.choice", "so that 3 choices have numbers"),
        ({"stop": ("a", "")}, "stop", "has 0 characters; it must have from 1 to 1024"),
        ({"stop": ("a" * 1025,)}, "stop", "has 1025 characters"),
        ({"stop": ("a",) * 17}, "stop", "17 strings; it may have at most 16"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "top_logprobs is 21; it must be from 0 to 20"),
        ({"top_logprobs": 2}, "top_logprobs", "neither logprobs nor prompt_logprobs"),
        ({"seed": -1}, "sampling.seed", "seed is -1"),
    ],
)
def test_a_bad_request_is_refused_by_field_value_and_bound(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        validate_answer_request(AnswerRequest(TextPrompt("a"), **changes))
    assert caught.value.field == field


def test_biased_and_stop_tokens_must_be_in_the_vocabulary() -> None:
    served = ModelIdentity("m", "", 100, 50, "float32")
    validate_sampled_tokens(SamplingParams(logit_bias=((99, 1.0),), stop_token_ids=(99,)), served)
    for field, sampling in (
        ("logit_bias", SamplingParams(logit_bias=((1, 1.0), (100, 1.0)))),
        ("stop_token_ids", SamplingParams(stop_token_ids=(1, 100))),
    ):
        with pytest.raises(
            InvalidRequest, match="token id 100 at position 1 is not in the vocabulary of 100"
        ) as caught:
            validate_sampled_tokens(sampling, served)
        assert caught.value.field == f"sampling.{field}"


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(100.0, 1.0, 2**32 - 1, 2**64 - 1, 2**32 - 1, 1.0, 100.0, 2.0, 2.0, ((0, 100.0), (1, -100.0))),
        SamplingParams(cached_scale=0.0),
        SamplingParams(cached_scale=1.0),
        SamplingParams(0.0, 1e-9, repetition_penalty=0.01, presence_penalty=-2.0, frequency_penalty=-2.0),
    ],
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
    assert model_paths.resolve_folder("demo-target") == tmp_path / "models" / "smollm2-135m-instruct-gguf-0.1.2-2"
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
