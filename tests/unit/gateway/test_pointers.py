"""A clone without Git LFS holds pointers in place of files; the gateway says so instead of serving with them."""

import shutil
from pathlib import Path

import pytest

from gateway.text import TextModel
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 12345\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), seed=0)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_git_lfs_pointer_is_called_what_it_is(model: Path, file: str, tmp_path: Path):
    folder = shutil.copytree(model, tmp_path / "clone")
    (folder / file).write_text(POINTER)
    with pytest.raises(ConfigurationError, match=rf"{file} is a Git LFS pointer.*git lfs pull"):
        TextModel.from_folder(folder)
