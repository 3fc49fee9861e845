"""Ids that a model's files name and its embeddings do not have are found at load, by file and value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saguaro.engine.loading import load_model
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model


def edited(folder: Path, file: str, **changes: object) -> Path:
    model = write_tiny_model(folder, seed=0)
    config = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(config | changes))
    return model


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("eos_token_id", 258), ("eos_token_id", [257, 4000]), ("bos_token_id", 258), ("pad_token_id", 300)],
)
def test_an_id_beyond_the_embeddings_is_refused_with_file_and_value(
    tmp_path: Path, file: str, name: str, value: int | list[int]
) -> None:
    model = edited(tmp_path, file, **{name: value})
    worst = value if isinstance(value, int) else value[-1]
    with pytest.raises(ConfigurationError, match=rf"{file}: {name} is {worst}, but the model has 258 embeddings"):
        load_model(str(model), dtype="float32", device="cpu")


@pytest.mark.parametrize("value", ["257", 2.5, True])
def test_an_id_that_is_no_integer_is_refused(tmp_path: Path, value: object) -> None:
    model = edited(tmp_path, "generation_config.json", eos_token_id=value)
    with pytest.raises(ConfigurationError, match=r"generation_config.json: eos_token_id is .*; it must be a token id"):
        load_model(str(model), dtype="float32", device="cpu")


def test_a_negative_id_means_none(tmp_path: Path) -> None:
    model = edited(tmp_path, "generation_config.json", eos_token_id=[-1, 257], pad_token_id=-1)
    assert load_model(str(model), dtype="float32", device="cpu").eos_token_ids == (257,)
