"""transformers `generate` on the same weights, in a process of its own.

`python -m bench.transformers_worker TARGET DRAFT THREADS` reads one JSON request a line from stdin and writes one JSON
reply a line to stdout, until stdin ends. Between requests it sleeps.

Request: `prompts` (token ids each), `max_tokens`, `temperature`, `seed`, `ignore_eos`, `assisted`, `assistant_tokens`
(draft tokens a round; null: transformers' own default), `stop_at` (null or a time). Reply: for each prompt `sent_at`
and `arrivals`, pairs of a time and tokens. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from saguaro.engine.loading import load_model


class Clock(StoppingCriteria):  # type: ignore[misc]
    """Notes when the sequences had which length; `generate` asks it after each round. Ends all of them at `stop_at`."""

    def __init__(self, stop_at: float | None) -> None:
        self.ticks: list[tuple[float, int]] = []
        self._stop_at = stop_at

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:  # input_ids: [batch, length]
        now = time.monotonic()
        self.ticks.append((now, input_ids.shape[1]))
        # Two ticks at the least: the first holds the prompt's prefill, and a speed needs one after it.
        is_over = self._stop_at is not None and now >= self._stop_at and len(self.ticks) > 1
        return torch.full((input_ids.shape[0],), is_over, dtype=torch.bool, device=input_ids.device)


class Worker:
    """Target and draft, loaded once."""

    def __init__(self, target: str, draft: str) -> None:
        loaded = load_model(target, dtype="float32", device="cpu")
        self._target: Any = loaded.model
        self._eos = loaded.eos_token_ids
        self._draft: Any = load_model(draft, dtype="float32", device="cpu", embeddings_from=target).model

    def answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Assisted generation takes one sequence at a time, so its prompts run one after the other."""
        prompts = request["prompts"]
        if not request["assisted"]:
            return self._generate(prompts, request)
        sent_at = time.monotonic()  # of all: those that queue have been asked, too
        replies = [reply for prompt in prompts for reply in self._generate([prompt], request)]
        return [reply | {"sent_at": sent_at} for reply in replies]

    @torch.inference_mode()
    def _generate(self, prompts: list[list[int]], request: dict[str, Any]) -> list[dict[str, Any]]:
        """One `generate` over all prompts, padded on the left."""
        longest = max(map(len, prompts))
        padding = self._eos[0] if self._eos else 0
        ids = torch.tensor([[padding] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampling: dict[str, Any] = {"do_sample": False}
        if request["temperature"] > 0:
            # Whatever the model's generation config cuts off, the others do not: no top-k, no top-p.
            sampling = {"do_sample": True, "temperature": request["temperature"], "top_k": 0, "top_p": 1.0}
        if request["ignore_eos"]:
            sampling["min_new_tokens"] = request["max_tokens"]
        if request["assisted"]:
            sampling["assistant_model"] = self._draft
            self._draft.generation_config.num_assistant_tokens = request["assistant_tokens"]
        torch.manual_seed(request["seed"])
        clock = Clock(request["stop_at"])
        sent_at = time.monotonic()
        output = self._target.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=request["max_tokens"],
            pad_token_id=padding,
            stopping_criteria=[clock],
            **sampling,
        )
        eos = () if request["ignore_eos"] else self._eos
        lengths = [_length(row, eos) for row in output[:, longest:].tolist()]
        return [{"sent_at": sent_at, "arrivals": _arrivals(clock.ticks, longest, length)} for length in lengths]


def _length(row: list[int], eos: Sequence[int]) -> int:
    """Tokens up to and with the first that ends the answer; what follows is padding."""
    return next((index + 1 for index, token in enumerate(row) if token in eos), len(row))


def _arrivals(ticks: list[tuple[float, int]], prompt_length: int, length: int) -> list[tuple[float, int]]:
    """Tokens by tick, those of this sequence only."""
    arrivals, seen = [], 0
    for at, total in ticks:
        now = min(total - prompt_length, length)
        if now > seen:
            arrivals.append((at, now - seen))
            seen = now
    return arrivals


def main() -> None:
    """Until stdin ends, which it does with the parent."""
    torch.set_num_threads(int(sys.argv[3]))
    # Libraries may print; replies must stand alone.
    replies, sys.stdout = sys.stdout, sys.stderr
    worker = Worker(sys.argv[1], sys.argv[2])
    reply: object = "ready"
    while True:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        line = sys.stdin.readline()
        if not line:
            return
        reply = worker.answer(json.loads(line))


if __name__ == "__main__":
    main()
