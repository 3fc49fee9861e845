from pathlib import Path

import pytest
import torch

from saguaro.engine.demo_models import demo_target
from saguaro.engine.grammar import ConstraintCompiler, Vocabulary
from saguaro.engine.model_runner import ModelRunner
from tests.tiny_models import write_tiny_model
from tests.unit.engine.grammar_walks import Walker
from tests.unit.engine.paged import Reference, make_runner

SHAPES = {
    "llama-gqa": {"family": "llama", "heads": 4, "kv_heads": 2},
    "llama-mha": {"family": "llama", "heads": 4, "kv_heads": 4},
    "llama-mqa": {"family": "llama", "heads": 3, "kv_heads": 1, "hidden": 48},
    "mistral": {"family": "mistral"},
    "qwen2": {"family": "qwen2"},
    "qwen3": {"family": "qwen3"},
    "gemma2": {"family": "gemma2"},
}


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=SHAPES)
def any_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of every supported family and head layout."""
    return write_tiny_model(tmp_path_factory.mktemp(request.param), seed=3, **SHAPES[request.param])


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llama"), seed=3)


@pytest.fixture
def reference(llama: Path) -> Reference:
    return Reference(llama)


@pytest.fixture
def runner(llama: Path) -> ModelRunner:
    return make_runner(llama)


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    return demo_target(lambda label, fraction: None)


@pytest.fixture(scope="session")
def compiler(demo_folder: Path) -> ConstraintCompiler:
    """For the demo target's tokenizer, whose model ends an answer with <|im_end|>; 0 makes a second such id."""
    return ConstraintCompiler(Vocabulary.from_folder(demo_folder, num_tokens=49152, eos_token_ids=(2, 0)))


@pytest.fixture(scope="session")
def walker(demo_folder: Path) -> Walker:
    return Walker(demo_folder)
