"""The data of a distillation: held-out texts once, training texts until there are enough."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from transformers import AutoTokenizer

from distill.plan import DistillPlan
from distill.prompts import held_out_prompts, prompts_of_file
from distill.shards import Sample, ShardFolder
from distill.writing import ChatPrompts, Job, TrainingJobs, written
from saguaro.engine.loading import LoadedModel, load_model
from saguaro.engine.model_runner import ModelRunner, context_limit_tokens
from saguaro.errors import ConfigurationError

OnTokens = Callable[[str, int, int | None], None]  # what is written, tokens so far, tokens wanted

_SHARD_TOKENS = 16_384
_BLOCK_SIZE = 16
_LONGEST_PROMPT = 512
_SHORTEST_LIMIT = 64  # a target without places for such prompts could write no texts


def write_data(plan: DistillPlan, on_tokens: OnTokens, deadline: float | None) -> None:
    """Writes what is missing of `plan`; `deadline`, of the monotonic clock, ends the training texts early.

    Interrupted at any point, at most one shard's work is lost: a shard is on disk whole or not at all.
    """
    training, held_out = ShardFolder(plan.data_folder), ShardFolder(plan.held_out_folder)
    if len(held_out) and _is_enough(plan, training, deadline):
        return
    own = prompts_of_file(plan.prompts) if plan.prompts is not None else []
    loaded = load_model(plan.target, dtype=plan.dtype, device="cpu", linear="auto")
    longest_prompt = min(_LONGEST_PROMPT, context_limit_tokens(loaded.model.config) - plan.answer_tokens)
    if longest_prompt < _SHORTEST_LIMIT:
        raise ConfigurationError(
            f"--answer-tokens is {plan.answer_tokens}; with a prompt of {_SHORTEST_LIMIT} tokens that is more than the "
            f"target's {context_limit_tokens(loaded.model.config)} positions"
        )
    blocks_each = -(-(longest_prompt + plan.answer_tokens) // _BLOCK_SIZE)
    runner = ModelRunner(loaded.model, num_blocks=plan.writers * blocks_each, block_size=_BLOCK_SIZE)
    chat = ChatPrompts(AutoTokenizer.from_pretrained(loaded.tokenizer_folder, trust_remote_code=False))
    if not len(held_out):
        held_out.append(_held_out_texts(plan, loaded, runner, chat, longest_prompt, on_tokens))
    # A resumed run goes on with other texts, not with the first ones again.
    seed = plan.seed + 1_000 * len(training)
    jobs = TrainingJobs(chat, random.Random(seed), plan.answer_tokens, own)
    samples: list[Sample] = []
    num_pending = 0
    texts = written(runner, _fitting(iter(jobs), longest_prompt), loaded.eos_token_ids, batch=plan.writers, seed=seed)
    for job, sample in texts:
        jobs.note(job, sample)
        samples.append(sample)
        num_pending += sample.num_written
        on_tokens("training texts", training.num_written + num_pending, plan.data_tokens if deadline is None else None)
        enough = training.num_written + num_pending >= plan.data_tokens or _is_past(deadline)
        if num_pending >= _SHARD_TOKENS or enough:
            training.append(samples)
            samples, num_pending = [], 0
        if enough:
            texts.close()
            return


def _held_out_texts(
    plan: DistillPlan,
    loaded: LoadedModel,
    runner: ModelRunner,
    chat: ChatPrompts,
    longest_prompt: int,
    on_tokens: OnTokens,
) -> list[Sample]:
    """Every kind greedily, then every kind at temperature 1, and so on."""
    prompts = held_out_prompts(plan.held_out)
    jobs = [chat.job(prompt, float(index // 6 % 2), plan.answer_tokens) for index, prompt in enumerate(prompts)]
    samples = []
    fitting = _fitting(iter(jobs), longest_prompt)
    for _, sample in written(runner, fitting, loaded.eos_token_ids, batch=plan.writers, seed=plan.seed):
        samples.append(sample)
        on_tokens("held-out texts", sum(item.num_written for item in samples), None)
    return samples


def _fitting(jobs: Iterator[Job], longest_prompt: int) -> Iterator[Job]:
    """Without those whose prompt the pool has no place for."""
    return (job for job in jobs if len(job.prompt_ids) <= longest_prompt)


def _is_enough(plan: DistillPlan, training: ShardFolder, deadline: float | None) -> bool:
    return training.num_written >= plan.data_tokens or (len(training) > 0 and _is_past(deadline))


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
