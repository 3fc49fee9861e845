"""Where the folder of a model is, without loading the model.

Shared by the engine, which converts and reads models, and the gateway, which reads only the tokenizer beside them.
"""

from __future__ import annotations

import os
from pathlib import Path

from saguaro.errors import ConfigurationError

DEMO_TARGET = "demo-target"
DEMO_DRAFT = "demo-draft"

# The versions of package and conversion are part of the name, so that another of either is another folder.
_DEMO_TARGET_NAME = "smollm2-135m-instruct-gguf-0.1.2-2"
_DEMO_DRAFT_NAME = "smollm2-135m-draft"

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def cache_folder() -> Path:
    """Root of what Saguaro may delete and make again: `$SAGUARO_CACHE`, else `~/.cache/saguaro`."""
    configured = os.environ.get("SAGUARO_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "saguaro"


def demo_target_folder() -> Path:
    """Where the demo target lies once it is converted; the folder appears whole, by one rename, or not at all."""
    return cache_folder() / "models" / _DEMO_TARGET_NAME


def demo_draft_folder() -> Path:
    """The demo draft, which ships inside the package."""
    return Path(__file__).parent / "data" / _DEMO_DRAFT_NAME


def resolve_folder(spec: str) -> Path | None:
    """The folder that `spec` names, or None while this machine has none.

    `spec` is "demo-target", "demo-draft", a folder, or a hub id whose snapshot the hub's own cache may hold.
    """
    if spec == DEMO_TARGET:
        return _existing(demo_target_folder())
    if spec == DEMO_DRAFT:
        return _existing(demo_draft_folder())
    return _existing(Path(spec).expanduser()) or (None if is_path(spec) else _hub_snapshot(spec))


def is_path(spec: str) -> bool:
    """Whether `spec` can only be a folder: nobody will download or convert it, so waiting for it is in vain."""
    return spec.startswith((os.sep, ".", "~")) or spec.count("/") > 1


def is_folder(spec: str) -> bool:
    """Whether `spec` names a folder of this machine, or the demo draft, and no snapshot of the hub."""
    return spec == DEMO_DRAFT or _existing(Path(spec).expanduser()) is not None


def served_name(spec: str) -> str:
    """Name under which a model is served when the settings give none: the last part of its spec."""
    return Path(spec).expanduser().name or spec


def refuse_lfs_pointer(file: Path) -> None:
    """Raises ConfigurationError where `file` holds no content but says where Git LFS has it; else nothing."""
    try:
        with file.open("rb") as source:
            is_pointer = source.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError:
        return  # whoever reads it next says what is wrong
    if is_pointer:
        raise ConfigurationError(
            f"{file} is a Git LFS pointer, not the file itself; fetch the files with `git lfs pull` in that folder"
        )


def _existing(folder: Path) -> Path | None:
    return folder if folder.is_dir() else None


def _hub_snapshot(hub_id: str) -> Path | None:
    """Snapshot of the main revision in the Hugging Face cache, whose layout is documented and stable."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    return _existing(repository / "snapshots" / revision)
