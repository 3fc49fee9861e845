"""Folders that no service can start with: one sentence, exit code 1, and no question on the terminal."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from saguaro.engine.loading import load_model
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model
from tests.unit.engine.family_models import write_config


def edit_config(folder: Path, **changes: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def with_code_of_its_own(folder: Path) -> Path:
    edit_config(
        write_tiny_model(folder, seed=0),
        model_type="cactus",
        auto_map={"AutoConfig": "cactus.CactusConfig", "AutoModelForCausalLM": "cactus.CactusForCausalLM"},
    )
    (folder / "cactus.py").write_text("raise SystemExit('code from the folder has run')\n")
    return folder


def mamba(folder: Path) -> Path:
    return write_config(folder, AutoConfig.for_model("mamba"))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (with_code_of_its_own, "needs Python code of its own"),
        (mamba, "MambaForCausalLM cannot run on paged attention"),
    ],
)
def test_a_verifier_that_cannot_serve_its_model_says_why_and_ends_with_1(make: Any, sentence: str, tmp_path: Path):
    command = [sys.executable, "-m", "verifier_service", "--target", str(make(tmp_path)), "--port", "0"]
    # Its standard input stays open: a question would wait for the answer.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as verifier:
        assert verifier.stdout is not None
        assert verifier.stderr is not None
        output, errors = verifier.stdout.read(), verifier.stderr.read()
        assert verifier.wait(timeout=60) == 1
    assert sentence in errors
    assert "Traceback" not in errors
    assert "code from the folder" not in errors + output
    assert "[y/N]" not in output


@pytest.mark.parametrize(
    ("quantization", "method"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"load_in_8bit": True}, "an unknown method"),
    ],
)
def test_a_quantised_checkpoint_is_refused_with_its_method(quantization: dict[str, Any], method: str, tmp_path: Path):
    folder = edit_config(write_tiny_model(tmp_path, seed=0), quantization_config=quantization)
    with pytest.raises(ConfigurationError, match=rf"this LlamaForCausalLM is quantised \({method}\)"):
        load_model(str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize("changes", [{"hidden_size": "64"}, {"num_attention_heads": 0}, {"hidden_act": "nosuch"}])
def test_a_config_that_makes_no_model_is_refused_in_a_sentence(changes: dict[str, Any], tmp_path: Path):
    folder = edit_config(write_tiny_model(tmp_path, seed=0), **changes)
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        load_model(str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize("text", ["", "[]", "{", '"llama"', "null"])
def test_a_config_that_is_no_json_object_is_refused_by_its_path(text: str, tmp_path: Path):
    folder = write_tiny_model(tmp_path, seed=0)
    (folder / "config.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"config\.json is not the config of a known model"):
        load_model(str(folder), dtype="float32", device="cpu")
