"""What a distillation is to do, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saguaro.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DistillPlan:
    """Bounded by `data_tokens` and `epochs`, or by `hours`."""

    target: str
    out: Path
    layers: tuple[int, ...] | None = None  # of the target; None: first four and last two
    start: str | None = None  # a draft to begin from in place of `layers`
    draft_vocab: int | None = None  # tokens of the draft's LM head; None: all
    data_tokens: int = 400_000
    epochs: float = 4.0
    hours: float | None = None
    data_share: float = 0.4  # of `hours`
    prompts: Path | None = None
    writers: int = 160  # texts written at once
    answer_tokens: int = 192  # at most
    batch_tokens: int = 2048  # of a training step
    learning_rate: float = 6e-4
    dtype: str = "bfloat16"  # the target's while it writes, and of the training's products
    threads: int = 1
    held_out: int = 96  # texts
    evaluate_every_minutes: float = 5.0
    seed: int = 0

    @property
    def data_folder(self) -> Path:
        """Shards for training."""
        return self.out / "data"

    @property
    def held_out_folder(self) -> Path:
        """Shards for evaluation, of other templates and topics."""
        return self.out / "held-out"

    @property
    def checkpoint_folder(self) -> Path:
        """State of the training."""
        return self.out / "checkpoint"

    @property
    def draft_folder(self) -> Path:
        """The result: a model folder."""
        return self.out / "draft"

    def check(self) -> None:
        """Raises ConfigurationError, naming the flag, for what cannot be."""
        bounds = {
            "tokens": (self.data_tokens, 1),
            "draft-vocab": (self.draft_vocab, 32),
            "writers": (self.writers, 1),
            "answer-tokens": (self.answer_tokens, 1),
            "batch-tokens": (self.batch_tokens, 16),
            "held-out": (self.held_out, 12),  # six kinds greedily, six at temperature 1
            "threads": (self.threads, 1),
        }
        for name, (value, least) in bounds.items():
            if value is not None and value < least:
                raise ConfigurationError(f"--{name} is {value}; it must be at least {least}")
        for name, amount in {"hours": self.hours, "epochs": self.epochs, "learning-rate": self.learning_rate}.items():
            if amount is not None and not amount > 0:
                raise ConfigurationError(f"--{name} is {amount:g}; it must be positive")
        if self.layers is not None and self.start is not None:
            raise ConfigurationError("--layers and --start exclude each other: --start brings its own layers")
