"""Which files of a model folder hold the weights that are loaded."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer

_INDEX_SUFFIX = ".safetensors.index.json"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that transformers loads, sorted: model.safetensors, else the shards that the index names.

    Others may lie beside them, as the same weights in another layout (consolidated.safetensors). Raises
    ConfigurationError for a folder without either, a missing shard, and a Git LFS pointer in place of a file.
    """
    index = index_file(folder)
    files = [folder / name for name in wanted_names(folder, index)]
    missing = [file.name for file in files if not file.is_file()]
    if missing and index is None:
        raise ConfigurationError(f"no weights at {folder}: expected {_SINGLE}, or {_INDEX} and the files that it names")
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ConfigurationError(
            f"{len(missing)} of {len(files)} files that {index} names are missing: {', '.join(missing[:3])}{more}; "
            "download the model again"
        )
    for file in files:
        refuse_lfs_pointer(file)
    return tuple(files)


def index_file(folder: Path) -> Path | None:
    """The index that says which file has which tensor; None where one file has all."""
    name = _named_by_config(folder)
    if name is None:
        name = _SINGLE if (folder / _SINGLE).is_file() else _INDEX
    return folder / name if name.endswith(_INDEX_SUFFIX) and (folder / name).is_file() else None


def wanted_names(folder: Path, index: Path | None) -> tuple[str, ...]:
    """Names of the files with the weights, sorted, of the model in `folder` with this index; they may not be there."""
    if index is not None:
        return tuple(sorted(set(weight_map(index).values())))
    return (_named_by_config(folder) or _SINGLE,)


def weight_map(index: Path) -> dict[str, str]:
    """File of each tensor. Raises ConfigurationError for an index that cannot be read, or leads out of its folder."""
    refuse_lfs_pointer(index)
    try:
        files = json.loads(index.read_text())["weight_map"]
        shards = {str(name): str(file) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{index} is not an index of safetensors files: {error!r}") from error
    for file in shards.values():
        if PurePosixPath(file).name != file:
            raise ConfigurationError(f"{index} names {file!r}, which is not a file of its folder")
    return shards


def _named_by_config(folder: Path) -> str | None:
    """A config may name the file, or the index, to load."""
    try:
        name = json.loads((folder / "config.json").read_text()).get("transformers_weights")
    except (OSError, ValueError, AttributeError):
        return None
    return name if isinstance(name, str) and PurePosixPath(name).name == name else None
