"""The target writes: many texts at once through the engine, each replaced by the next as it ends.

A forward carries one token of every running text and the prompts of those that begin, so no row is ever padding.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from distill.prompts import Prompt, training_prompts
from distill.shards import TOP_K, Sample
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner

TEMPERATURES = (0.0, 0.0, 0.7, 1.0, 1.0, 1.2)  # drawn evenly; greedy decoding is what most requests are nearest to
_INVENTED_SHARE, _USERS_SHARE = 0.25, 0.5
_MOST_KEPT_INVENTIONS = 64
_LONGEST_INVENTION = 48
_MARK = "saguaro-mark"


@dataclass(frozen=True, slots=True)
class Job:
    """A text to be written."""

    prompt_ids: tuple[int, ...]
    temperature: float
    num_tokens: int  # at most
    is_invention: bool = False  # of a prompt, by the target itself


class ChatPrompts:
    """From prompts to jobs, by the target's own chat template; plain text where it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        if tokenizer.chat_template:
            self._bare = self._rendered(_MARK).split(_MARK)[0]
        else:
            self._bare = ""

    def job(self, prompt: Prompt, temperature: float, num_tokens: int) -> Job:
        """An answer to `prompt`."""
        text = self._rendered(prompt.text) if self._tokenizer.chat_template else prompt.text
        return Job(self._ids(text), temperature, num_tokens)

    def invention(self) -> Job | None:
        """A user message as the target imagines one; None without a chat template."""
        return Job(self._ids(self._bare), 1.0, _LONGEST_INVENTION, is_invention=True) if self._bare else None

    def text(self, token_ids: Sequence[int]) -> str:
        """What the user of an invention said."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text.strip()

    def _rendered(self, content: str) -> str:
        messages = [{"role": "user", "content": content}]
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=not self._tokenizer.chat_template))


class TrainingJobs:
    """Endless jobs: templates, the user's prompts, and what the target invented meanwhile."""

    def __init__(self, chat: ChatPrompts, rng: random.Random, num_tokens: int, own: Sequence[Prompt] = ()) -> None:
        self._chat, self._rng, self._num_tokens, self._own = chat, rng, num_tokens, list(own)
        self._templates = training_prompts(rng)
        self._invented: deque[Prompt] = deque(maxlen=_MOST_KEPT_INVENTIONS)

    def __iter__(self) -> Iterator[Job]:
        while True:
            invention = self._chat.invention() if self._rng.random() < _INVENTED_SHARE else None
            if invention is not None and not self._invented:
                yield invention
                continue
            temperature = self._rng.choice(TEMPERATURES)
            yield self._chat.job(self._prompt(invention is not None), temperature, self._num_tokens)

    def note(self, job: Job, sample: Sample) -> None:
        """Takes in what the target wrote."""
        if job.is_invention:
            text = self._chat.text(sample.token_ids[len(job.prompt_ids) :].tolist())
            if text:
                self._invented.append(Prompt("invented", text))

    def _prompt(self, invented: bool) -> Prompt:
        if invented:
            return self._invented.popleft()
        if self._own and self._rng.random() < _USERS_SHARE:
            return self._rng.choice(self._own)
        return next(self._templates)


@dataclass(slots=True)
class _Text:
    """A text being written."""

    job: Job
    table: BlockTable
    token_ids: list[int]
    num_done: int = 0  # tokens whose KV is there
    top_ids: list[Tensor] = field(default_factory=list)
    top_log_probs: list[Tensor] = field(default_factory=list)

    def sample(self) -> Sample:
        return Sample(
            torch.tensor(self.token_ids, dtype=torch.int32),
            torch.stack(self.top_ids),
            torch.stack(self.top_log_probs),
            self.job.temperature,
        )


def written(
    runner: Runner,
    jobs: Iterator[Job],
    eos_token_ids: Sequence[int],
    *,
    batch: int,
    seed: int,
) -> Generator[tuple[Job, Sample], None, None]:
    """Texts of `jobs` as they end, `batch` at a time; ends when all are written.

    The runner's pool must hold `batch` of the longest. Left early, it gives all blocks back.
    """
    random_bits = torch.Generator().manual_seed(seed)
    running: list[_Text] = []
    try:
        while True:
            while len(running) < batch and (job := next(jobs, None)) is not None:
                running.append(_Text(job, BlockTable(runner.block_manager), list(job.prompt_ids)))
            if not running:
                return
            _step(runner, running, random_bits)
            ended = [text for text in running if _is_whole(text, eos_token_ids)]
            running = [text for text in running if not _is_whole(text, eos_token_ids)]
            for text in ended:
                text.table.free()
                yield text.job, text.sample()
    finally:
        for text in running:
            text.table.free()


def _step(runner: Runner, running: Sequence[_Text], random_bits: torch.Generator) -> None:
    """One token more of every text."""
    chunks = []
    for text in running:
        text.table.reserve(len(text.token_ids))
        chunks.append(Chunk.causal(text.token_ids[text.num_done :], text.num_done, text.table, num_logits=1))
        text.num_done = len(text.token_ids)
    logits = runner.forward(chunks).rows
    top = logits.topk(min(TOP_K, logits.shape[1]))
    tokens = drawn(logits, top.indices[:, 0], torch.tensor([text.job.temperature for text in running]), random_bits)
    # log p of the likeliest gives the normaliser: torch's logsumexp takes six times as long as its softmax.
    likeliest = logits.softmax(-1).gather(1, top.indices[:, :1]).log()
    top_log_probs = (top.values - top.values[:, :1] + likeliest).half()
    for index, (text, token) in enumerate(zip(running, tokens.tolist(), strict=True)):
        text.token_ids.append(token)
        text.top_ids.append(top.indices[index].int())
        text.top_log_probs.append(top_log_probs[index])


def drawn(logits: Tensor, likeliest: Tensor, temperatures: Tensor, random_bits: torch.Generator) -> Tensor:
    """Tokens [rows]: `likeliest` [rows] at temperature 0, else by softmax(`logits` [rows, vocab] / temperature).

    One uniform number a row, looked up among the sums: torch.multinomial and a race draw one for every logit.
    """
    tokens = likeliest.clone()
    rows = temperatures.nonzero()[:, 0]
    if len(rows):
        sums = (logits[rows] / temperatures[rows, None]).softmax(-1).cumsum(-1)
        places = torch.rand(len(rows), 1, generator=random_bits) * sums[:, -1:]
        tokens[rows] = torch.searchsorted(sums, places, right=True)[:, 0].clamp_max(logits.shape[1] - 1)
    return tokens


def _is_whole(text: _Text, eos_token_ids: Sequence[int]) -> bool:
    return text.token_ids[-1] in eos_token_ids or len(text.top_ids) >= text.job.num_tokens
