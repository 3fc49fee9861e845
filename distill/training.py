"""The training: batches in, a better draft out, and a checkpoint from which it goes on as if never stopped."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from distill.batches import Batch, grouped
from distill.checkpoint import Progress, State, give_moments, moments_of, save_state
from distill.cut import Draft
from distill.loss import losses
from distill.plan import DistillPlan
from distill.shards import Sample

OnStep = Callable[[Progress, float], None]  # after a step, and its loss

_WARM_UP_STEPS = 40
_LAST_RATE = 0.05  # of the highest
_MOST_GRADIENT_NORM = 1.0
_BETAS = (0.9, 0.98)
_WEIGHT_DECAY = 0.01


class Training:
    """One draft in training. A step is whole or not begun, so an interrupt between steps loses nothing."""

    def __init__(
        self, plan: DistillPlan, draft: Draft, read: Callable[[], Sequence[Sample]], state: State | None
    ) -> None:
        """Goes on from `state`, or begins. `read` gives the texts, anew every epoch: there may be more by then."""
        self._plan, self.draft, self._read = plan, draft, read
        self._parameters = draft.trained()
        self._column_of = draft.column_of
        self._optimiser = torch.optim.AdamW(
            list(self._parameters.values()), lr=plan.learning_rate, betas=_BETAS, weight_decay=_WEIGHT_DECAY
        )
        self.progress = Progress()
        if state is not None:
            with torch.no_grad():
                for name, parameter in self._parameters.items():
                    parameter.copy_(state.weights[name])
            give_moments(self._optimiser, list(self._parameters), state.moments)
            self.progress = state.progress

    def run(self, until: Callable[[Progress], bool], share: Callable[[Progress], float], on_step: OnStep) -> None:
        """Trains until `until` says so. `share`, 0 to 1, is how much of the whole training is behind."""
        while not until(self.progress):
            order = random.Random(f"{self._plan.seed}/{self.progress.epoch}")
            groups = list(grouped(self._read(), self._plan.batch_tokens, order))
            for group in groups[self.progress.groups_done :]:
                if until(self.progress):
                    return
                began = time.thread_time()  # a stopped or crowded process does not age, or its schedule would skip
                batch = Batch.of(group, self._column_of)
                loss = self._step(batch, share(self.progress))
                self.progress = replace(
                    self.progress,
                    steps=self.progress.steps + 1,
                    tokens=self.progress.tokens + len(batch.rows),
                    seconds=self.progress.seconds + time.thread_time() - began,
                    groups_done=self.progress.groups_done + 1,
                )
                on_step(self.progress, loss)
            self.progress = replace(self.progress, epoch=self.progress.epoch + 1, groups_done=0)

    def note(self, figures: dict[str, float]) -> None:
        """One point more of the learning curve."""
        self.progress = replace(self.progress, curve=(*self.progress.curve, figures))

    def save(self, origin: dict[str, Any]) -> None:
        """The checkpoint. `origin` is what it takes to make the draft's shape again."""
        names = list(self._parameters)
        moments = moments_of(self._optimiser, names)
        save_state(self._plan.checkpoint_folder, State(self.progress, dict(self._parameters), moments, origin))

    def _step(self, batch: Batch, share: float) -> float:
        rate = learning_rate(self._plan.learning_rate, self.progress.steps, share)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._plan.dtype == "bfloat16"):
            hidden = self.draft.model.model(input_ids=batch.token_ids, use_cache=False).last_hidden_state
            logits = self.draft.head(hidden.flatten(0, 1)[batch.rows])
        loss = losses(batch.laws, logits).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self._parameters.values()), _MOST_GRADIENT_NORM)
        self._optimiser.step()
        return float(loss.detach())


def learning_rate(highest: float, steps: int, share: float) -> float:
    """Warm-up over the first steps, then half a cosine over the whole training, `share` of which is behind."""
    warm = min(1.0, (steps + 1) / _WARM_UP_STEPS)
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
    return highest * warm * (_LAST_RATE + (1.0 - _LAST_RATE) * cosine)
