"""Where a training stands, in one file that is replaced at once or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from saguaro.errors import ConfigurationError

_FILE = "state.safetensors"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is; the order of an epoch follows from seed, number and data."""

    steps: int = 0
    tokens: int = 0  # trained on, repetitions included
    seconds: float = 0.0  # of processor time of the training's main thread
    epoch: int = 0
    groups_done: int = 0  # of that epoch
    curve: tuple[dict[str, float], ...] = ()  # one point an evaluation


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Everything that a resumed training needs to continue as if never stopped."""

    progress: Progress
    weights: dict[str, Tensor]  # float32
    moments: dict[str, Tensor]  # of the optimiser, "name/exp_avg" and the like
    origin: dict[str, Any]  # target, layers, start and token map of the draft that the weights belong to


def save_state(folder: Path, state: State) -> None:
    """Replaces what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"weights/{name}": value for name, value in state.weights.items()}
    tensors |= {f"moments/{name}": value for name, value in state.moments.items()}
    notes = {"progress": json.dumps(dataclasses.asdict(state.progress)), "origin": json.dumps(state.origin)}
    work = folder / f".{_FILE}.partial"
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, work, metadata=notes)
    with work.open("rb") as file:
        os.fsync(file.fileno())
    work.replace(folder / _FILE)


def load_state(folder: Path) -> State | None:
    """What was saved; None where nothing was. Raises ConfigurationError for a damaged file."""
    path = folder / _FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigurationError(f"the checkpoint {path} is damaged: {error}; delete it to train anew") from error
    progress = json.loads(notes["progress"])
    progress["curve"] = tuple(progress["curve"])
    return State(
        Progress(**progress), _part(tensors, "weights/"), _part(tensors, "moments/"), json.loads(notes["origin"])
    )


def moments_of(optimiser: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimiser's memory by name of the weight; `names` in the order of its parameters."""
    states = optimiser.state_dict()["state"]
    return {f"{names[index]}/{key}": value for index, state in states.items() for key, value in state.items()}


def give_moments(optimiser: torch.optim.Optimizer, names: list[str], moments: dict[str, Tensor]) -> None:
    """The inverse of `moments_of`."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        name, _, part = key.rpartition("/")
        states.setdefault(names.index(name), {})[part] = value
    optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
