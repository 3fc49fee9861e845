"""Every file of a model that names an end-of-sequence token is heard."""

import json
from pathlib import Path
from typing import Any

import pytest

from saguaro.engine.loading import load_model
from saguaro.errors import ConfigurationError
from tests.tiny_models import EOS_ID, IM_START_ID, write_tiny_model


def rewrite(file: Path, **changes: Any) -> None:
    """Sets fields of a JSON file; None takes a field out."""
    document = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


def end_tokens(folder: Path) -> set[int]:
    return set(load_model(str(folder), dtype="float32", device="cpu").eos_token_ids)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model none of whose files names a token that ends an answer; by default Llama's is 2."""
    folder = write_tiny_model(tmp_path, seed=0)
    for file in ("config.json", "tokenizer_config.json", "generation_config.json"):
        rewrite(folder / file, eos_token_id=None, eos_token=None)
    return folder


def test_where_no_file_names_one_it_is_the_familys(folder: Path):
    assert end_tokens(folder) == {2}


def test_a_file_that_says_there_is_none_is_heard(folder: Path):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": None}))
    assert end_tokens(folder) == set()


@pytest.mark.parametrize("token", ["<|im_end|>", {"content": "<|im_end|>", "special": True}])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_one_that_only_the_tokenizers_files_name_ends_answers(folder: Path, file: str, token: Any):
    (folder / file).touch()
    (folder / file).write_text(json.dumps({"eos_token": token}))
    assert end_tokens(folder) == {EOS_ID}


def test_each_file_may_name_another_and_all_count(folder: Path):
    rewrite(folder / "config.json", eos_token_id=5)
    rewrite(folder / "generation_config.json", eos_token_id=[7, IM_START_ID])
    rewrite(folder / "tokenizer_config.json", eos_token="<|im_end|>")
    loaded = load_model(str(folder), dtype="float32", device="cpu")
    assert loaded.eos_token_ids == (7, IM_START_ID, 5, EOS_ID)


def test_a_name_that_the_tokenizer_does_not_know_is_nothing(folder: Path):
    rewrite(folder / "config.json", eos_token_id=5)
    rewrite(folder / "tokenizer_config.json", eos_token="</s>")
    assert end_tokens(folder) == {5}


def test_a_token_without_an_embedding_never_comes(tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=0, vocab=40)
    rewrite(folder / "config.json", eos_token_id=5, bos_token_id=None)
    rewrite(folder / "generation_config.json", eos_token_id=None, bos_token_id=None)
    assert end_tokens(folder) == {5}


def test_a_draft_without_a_tokenizer_hears_its_targets(folder: Path, tmp_path: Path):
    draft = write_tiny_model(tmp_path / "draft", seed=1)
    for file in draft.glob("*token*"):
        file.unlink()
    rewrite(draft / "config.json", shares_embeddings_with_target=True, eos_token_id=None)
    (draft / "generation_config.json").unlink()
    rewrite(folder / "tokenizer_config.json", eos_token="<|im_end|>")
    loaded = load_model(str(draft), dtype="float32", device="cpu", embeddings_from=str(folder), role="draft")
    assert loaded.eos_token_ids == (EOS_ID,)


@pytest.mark.parametrize("file", ["generation_config.json", "tokenizer_config.json"])
def test_a_file_that_is_no_json_object_is_refused_by_its_path(folder: Path, file: str):
    (folder / file).write_text("[}")
    with pytest.raises(ConfigurationError, match=file):
        end_tokens(folder)
