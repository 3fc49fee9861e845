import itertools
import random
from pathlib import Path

import torch
from transformers import AutoTokenizer

from distill.prompts import held_out_prompts, training_prompts
from distill.shards import Sample
from distill.writing import ChatPrompts, Job, TrainingJobs, drawn, written
from tests.tiny_models import EOS_ID
from tests.unit.distill.conftest import tiny_runner
from tests.unit.engine.paged import Reference


def test_greedy_texts_are_the_targets_own_and_carry_its_law(target: Path, samples: list[Sample]) -> None:
    greedy = next(sample for sample in samples if sample.temperature == 0.0)
    logits = Reference(target).logits(greedy.token_ids[:-1].tolist())[-greedy.num_written :].log_softmax(-1)
    assert torch.equal(logits.argmax(-1), greedy.token_ids[-greedy.num_written :].long())
    assert torch.equal(logits.argmax(-1), greedy.top_ids[:, 0].long())
    torch.testing.assert_close(logits.topk(24).values, greedy.top_log_probs.float(), atol=0.01, rtol=0.001)


def test_each_text_ends_at_its_end_token_or_its_limit_and_all_memory_comes_back(target: Path) -> None:
    runner = tiny_runner(target)
    jobs = [Job((3, index), 1.0, 5 + index) for index in range(10)]
    texts = written(runner, iter(jobs), (EOS_ID,), batch=4, seed=0)
    done = list(itertools.islice(texts, 8))
    texts.close()
    assert runner.block_manager.num_free == runner.block_manager.num_blocks
    assert all(sample.num_written == job.num_tokens or int(sample.token_ids[-1]) == EOS_ID for job, sample in done)


def test_tokens_are_drawn_by_the_law_at_their_own_temperature() -> None:
    """60,000 draws: an error of 0.01 is five standard deviations, 6e-7 for each of eight figures."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    temperatures = torch.tensor([0.7, 1.2, 0.0]).repeat(60_000)
    likeliest = torch.full((180_000,), 3)  # told, not found: seen where it is taken
    tokens = drawn(logits.expand(180_000, 4), likeliest, temperatures, torch.Generator().manual_seed(0)).view(-1, 3)
    for column, temperature in enumerate((0.7, 1.2)):
        shares = tokens[:, column].bincount(minlength=4) / 60_000
        torch.testing.assert_close(shares, (logits / temperature).softmax(-1), atol=0.01, rtol=0)
    assert (tokens[:, 2] == 3).all()


def test_the_target_invents_prompts_from_its_bare_chat_prefix_and_answers_them(target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(target)
    chat = ChatPrompts(tokenizer)
    jobs = TrainingJobs(chat, random.Random(0), 8)
    stream = iter(jobs)
    invention = next(job for job in stream if job.is_invention)
    said = torch.tensor([*invention.prompt_ids, *tokenizer.encode("why?"), EOS_ID], dtype=torch.int32)
    jobs.note(invention, Sample(said, torch.zeros(5, 1), torch.zeros(5, 1), 1.0))
    answers = [chat.text(job.prompt_ids) for job in itertools.islice(stream, 20)]
    assert any("why?" in text for text in answers)


def test_no_held_out_prompt_is_ever_trained_on() -> None:
    trained = {prompt.text for prompt in itertools.islice(training_prompts(random.Random(0)), 5_000)}
    held_out = held_out_prompts(96)
    assert held_out == held_out_prompts(96)
    assert not trained & {prompt.text for prompt in held_out if prompt.kind != "arithmetic"}
    assert {prompt.kind for prompt in held_out} == {"chat", "explanation", "story", "list", "code", "arithmetic"}
