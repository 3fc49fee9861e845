import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saguaro.engine.fingerprint import model_fingerprint, tokenizer_fingerprint, tokenizer_identity
from saguaro.errors import ConfigurationError
from tests.tiny_models import noisy_copy, write_tiny_model


def test_the_same_tokenizer_beside_other_weights_has_the_same_fingerprint(llama: Path, tmp_path: Path):
    other = write_tiny_model(tmp_path, seed=99, hidden=32, vocab=300)
    assert tokenizer_fingerprint(other) == tokenizer_fingerprint(llama)


def test_one_more_special_token_is_another_fingerprint_and_counts_as_usable(llama: Path, tmp_path: Path):
    other = write_tiny_model(tmp_path, seed=3, extra_token="<|tool|>")
    assert tokenizer_fingerprint(other) != tokenizer_fingerprint(llama)
    assert tokenizer_identity(llama).usable_vocabulary_tokens == 258
    assert tokenizer_identity(other).usable_vocabulary_tokens == 259


def test_two_tokens_with_swapped_ids_are_another_fingerprint(llama: Path, tmp_path: Path):
    text = (llama / "tokenizer.json").read_text()
    swapped = text.replace('"a":', '"?":', 1).replace('"b":', '"a":', 1).replace('"?":', '"b":', 1)
    assert swapped != text
    (tmp_path / "tokenizer.json").write_text(swapped)
    assert tokenizer_fingerprint(tmp_path) != tokenizer_fingerprint(llama)


def test_a_folder_without_a_tokenizer_is_a_configuration_error(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"no tokenizer at .*: expected tokenizer.json there"):
        tokenizer_identity(tmp_path)


def test_a_broken_tokenizer_file_is_a_configuration_error(llama: Path, tmp_path: Path):
    shutil.copy(llama / "config.json", tmp_path / "tokenizer.json")
    with pytest.raises(ConfigurationError, match=r"tokenizer.json is not a tokenizer file"):
        tokenizer_identity(tmp_path)


def test_reading_a_fingerprint_loads_no_torch():
    code = "import sys, saguaro.engine.fingerprint; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_other_weights_another_config_or_lossy_layers_are_another_model(llama: Path, tmp_path: Path):
    own = model_fingerprint(llama)
    shutil.copytree(llama, tmp_path / "same")
    assert model_fingerprint(tmp_path / "same") == own
    others = {own, model_fingerprint(llama, "int8"), model_fingerprint(noisy_copy(llama, tmp_path / "noisy", 1e-5))}
    config = tmp_path / "same" / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps"', '"rms_norm_epsilon"'))
    assert len(others | {model_fingerprint(tmp_path / "same")}) == 4


def test_weights_that_are_none_are_a_configuration_error(llama: Path, tmp_path: Path):
    shutil.copytree(llama, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    with pytest.raises(ConfigurationError, match="is not a safetensors file"):
        model_fingerprint(tmp_path / "broken")
