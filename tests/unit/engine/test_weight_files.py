"""The files that are loaded are the model: others beside them count for nothing, and each that is missing is named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from saguaro.engine.fingerprint import model_fingerprint, tokenizer_identity
from saguaro.engine.loading import load_model
from saguaro.engine.weight_files import weight_files
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model

POINTER = """version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "whole", seed=3)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """The same model in two files."""
    folder = write_tiny_model(tmp_path / "sharded", seed=3)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: SHARDS[index % 2] for index, name in enumerate(weights)}
    for shard in SHARDS:
        save_file({name: weights[name] for name in weights if places[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def load(folder: Path) -> torch.nn.Module:
    return load_model(str(folder), dtype="float32", device="cpu").model


def test_the_same_weights_in_another_layout_beside_the_shards_are_not_the_model(sharded: Path):
    before = model_fingerprint(sharded)
    save_file({"layers.0.wq": torch.ones(2, 2)}, sharded / "consolidated.safetensors")
    assert model_fingerprint(sharded) == before
    assert [file.name for file in weight_files(sharded)] == SHARDS
    load(sharded)


def test_a_broken_file_that_nothing_loads_does_no_harm(whole: Path):
    before = model_fingerprint(whole)
    (whole / "adapter_model.safetensors").write_bytes(b"not safetensors")
    assert model_fingerprint(whole) == before
    load(whole)


def test_a_model_in_one_file_and_in_shards_is_one_model(whole: Path, sharded: Path):
    assert model_fingerprint(whole) == model_fingerprint(sharded)


def test_one_number_in_the_second_shard_makes_another_model(sharded: Path):
    before = model_fingerprint(sharded)
    weights = load_file(sharded / SHARDS[1])
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, sharded / SHARDS[1])
    assert model_fingerprint(sharded) != before


def test_a_missing_shard_is_named(sharded: Path):
    (sharded / SHARDS[1]).unlink()
    with pytest.raises(ConfigurationError, match=rf"1 of 2 files that .*index.json names are missing: {SHARDS[1]}"):
        load(sharded)


def test_a_folder_with_pickled_weights_alone_is_refused(whole: Path):
    torch.save(load_file(whole / "model.safetensors"), whole / "pytorch_model.bin")
    (whole / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"no weights at .*expected model\.safetensors"):
        load(whole)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"])
def test_a_git_lfs_pointer_is_called_what_it_is(whole: Path, file: str):
    (whole / file).write_text(POINTER)
    with pytest.raises(ConfigurationError, match=rf"{file} is a Git LFS pointer.*git lfs pull"):
        load(whole)


@pytest.mark.parametrize("file", [SHARDS[1], "model.safetensors.index.json"])
def test_a_git_lfs_pointer_among_the_shards_is_called_what_it_is(sharded: Path, file: str):
    (sharded / file).write_text(POINTER)
    with pytest.raises(ConfigurationError, match=rf"{file} is a Git LFS pointer"):
        load(sharded)


def test_a_fingerprint_of_a_tokenizer_that_is_a_pointer_says_so(whole: Path):
    (whole / "tokenizer.json").write_text(POINTER)
    with pytest.raises(ConfigurationError, match="Git LFS pointer"):
        tokenizer_identity(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not an index"),
        ("[]", "is not an index"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "not a file of its folder"),
    ],
)
def test_an_index_that_names_no_files_of_its_folder_is_refused(sharded: Path, text: str, message: str):
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load(sharded)


def test_a_file_that_the_config_names_is_the_one_that_is_loaded(whole: Path):
    (whole / "model.safetensors").rename(whole / "other.safetensors")
    file = whole / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"transformers_weights": "other.safetensors"}))
    assert [weights.name for weights in weight_files(whole)] == ["other.safetensors"]
    load(whole)
