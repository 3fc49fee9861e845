import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from saguaro.engine.fingerprint import model_fingerprint, tokenizer_fingerprint
from saguaro.engine.loading import load_model
from saguaro.errors import ConfigurationError
from saguaro.types import ModelIdentity
from tests.tiny_models import EOS_ID, noisy_copy, write_tiny_model

EMBEDDINGS, LM_HEAD = "model.embed_tokens.weight", "lm_head.weight"


def load(folder: Path, dtype: str = "float32", embeddings_from: Path | None = None):
    shared = None if embeddings_from is None else str(embeddings_from)
    return load_model(str(folder), dtype=dtype, device="cpu", embeddings_from=shared)


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def drop_weights(folder: Path, *names: str) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight for name, weight in weights.items() if name not in names}, folder / "model.safetensors")


@pytest.fixture
def sharing_draft(llama: Path, tmp_path: Path) -> Path:
    """A draft without embeddings, LM head and tokenizer."""
    folder = noisy_copy(llama, tmp_path / "draft", noise=0.02)
    drop_weights(folder, EMBEDDINGS, LM_HEAD)
    edit_config(folder, shares_embeddings_with_target=True)
    (folder / "tokenizer.json").unlink()
    return folder


def test_a_folder_is_loaded_with_its_identity_and_end_tokens(llama: Path):
    loaded = load(llama)
    prints = {"tokenizer_fingerprint": tokenizer_fingerprint(llama), "model_fingerprint": model_fingerprint(llama)}
    assert loaded.identity == ModelIdentity(
        name=llama.name, usable_vocabulary_tokens=258, context_limit_tokens=512, dtype="float32", **prints
    )
    assert loaded.eos_token_ids == (EOS_ID,)
    assert loaded.folder == llama
    assert torch.equal(loaded.model.lm_head.weight, load_file(llama / "model.safetensors")[LM_HEAD])
    assert not loaded.model.training


def test_several_end_tokens_are_all_kept(tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=0)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 3]}))
    assert load(folder).eos_token_ids == (257, 3)


def test_without_a_generation_config_the_end_token_is_the_configs(tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=0)
    (folder / "generation_config.json").unlink()
    assert load(folder).eos_token_ids == (EOS_ID,)


def test_the_element_type_is_the_one_asked_for(llama: Path):
    loaded = load(llama, dtype="bfloat16")
    assert (loaded.model.dtype, loaded.identity.dtype) == (torch.bfloat16, "bfloat16")


def test_tokens_without_embeddings_are_not_usable(tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=0, vocab=40)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 39, "bos_token_id": None}))
    assert load(folder).identity.usable_vocabulary_tokens == 40


def test_a_sharing_draft_gets_embeddings_head_and_tokenizer_of_its_target(llama: Path, sharing_draft: Path):
    loaded = load(sharing_draft, embeddings_from=llama)
    target = load_file(llama / "model.safetensors")
    assert torch.equal(loaded.model.model.embed_tokens.weight, target[EMBEDDINGS])
    assert torch.equal(loaded.model.lm_head.weight, target[LM_HEAD])
    own = load_file(sharing_draft / "model.safetensors")
    assert torch.equal(loaded.model.model.norm.weight, own["model.norm.weight"])
    assert loaded.identity.tokenizer_fingerprint == tokenizer_fingerprint(llama)


def test_a_sharing_draft_reads_the_embeddings_of_a_sharded_target(llama: Path, sharing_draft: Path, tmp_path: Path):
    target = noisy_copy(llama, tmp_path / "sharded", noise=0.0)
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    shards = {name: f"model-{index % 2 + 1:05}-of-00002.safetensors" for index, name in enumerate(weights)}
    for shard in set(shards.values()):
        save_file({name: weights[name] for name in weights if shards[name] == shard}, target / shard)
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    loaded = load(sharing_draft, embeddings_from=target)
    assert torch.equal(loaded.model.model.embed_tokens.weight, weights[EMBEDDINGS])


def test_a_sharing_draft_alone_is_refused(sharing_draft: Path):
    with pytest.raises(ConfigurationError, match="has no embeddings of its own"):
        load(sharing_draft)


def test_a_sharing_draft_with_a_target_of_another_size_is_refused(sharing_draft: Path, tmp_path: Path):
    target = write_tiny_model(tmp_path / "target", seed=0, hidden=32)
    with pytest.raises(ConfigurationError, match=r"needs \[258, 64\], the target has \[258, 32\]"):
        load(sharing_draft, embeddings_from=target)


def test_absent_weights_are_an_error_and_never_random(llama: Path, tmp_path: Path):
    folder = noisy_copy(llama, tmp_path / "incomplete", noise=0.0)
    drop_weights(folder, "model.layers.1.mlp.up_proj.weight")
    with pytest.raises(ConfigurationError, match=r"lacks 1 weights: model.layers.1.mlp.up_proj.weight"):
        load(folder)


def test_a_broken_weights_file_is_a_configuration_error(llama: Path, tmp_path: Path):
    folder = noisy_copy(llama, tmp_path / "broken", noise=0.0)
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"model_type": "no-such-model"}, "is not the config of a known model"), ({"model_type": None}, "config.json")],
)
def test_an_unknown_model_type_is_a_configuration_error(
    llama: Path, tmp_path: Path, changes: dict[str, object], message: str
):
    folder = noisy_copy(llama, tmp_path / "unknown", noise=0.0)
    edit_config(folder, **changes)
    with pytest.raises(ConfigurationError, match=message):
        load(folder)


def test_a_folder_that_is_missing_or_empty_is_a_configuration_error(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"no model at .*absent: expected"):
        load(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=r"no model at .*: expected config.json"):
        load(tmp_path)


def test_an_unknown_element_type_is_a_configuration_error_that_names_the_known(llama: Path):
    with pytest.raises(ConfigurationError, match="expected one of float32, bfloat16, float16"):
        load(llama, dtype="int3")


def test_a_hub_model_that_cannot_be_had_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match="no model 'nobody/nothing': expected demo-target, demo-draft, an exist"
    ):
        load_model("nobody/nothing", dtype="float32", device="cpu")
