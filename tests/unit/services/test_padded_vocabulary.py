"""Embeddings without a token: never chosen, drafted or reported; where an older text holds one, it is computed."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from saguaro.config import VerifierSettings
from saguaro.engine.model_runner import ModelRunner
from saguaro.types import AcceptanceMode, GenerationRequest, SamplingParams
from saguaro.v1 import verifier_pb2
from tests.tiny_models import noisy_copy, write_tiny_model
from tests.unit.services.in_memory_trio import InMemoryTrio
from tests.unit.services.service_house import DEADLINE_SECONDS, free_port, house
from verifier_service.worker import VerifierWorker

NUM_TOKENS, NUM_ROWS = 258, 320
PROMPT = tuple(range(40, 63))


def loud(folder: Path) -> Path:
    """The rows without a token have the largest logits, so that an argmax over all would often be one of them."""
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][NUM_TOKENS:] *= 3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return loud(write_tiny_model(tmp_path_factory.mktemp("padded"), seed=1, vocab=NUM_ROWS, max_positions=128))


@pytest.fixture(scope="module")
def draft(padded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return noisy_copy(padded, tmp_path_factory.mktemp("draft"), noise=0.03)


@lru_cache(maxsize=4)
def weights_of(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def runner(folder: Path) -> ModelRunner:
    return ModelRunner(weights_of(folder), num_blocks=256, block_size=4, num_tokens=NUM_TOKENS)


def request(**sampling: object) -> GenerationRequest:
    return GenerationRequest("r", PROMPT, max_tokens=40, sampling=SamplingParams(**sampling))  # type: ignore[arg-type]


@torch.inference_mode()
def greedy_without_padding(folder: Path, count: int) -> list[int]:
    """transformers' own logits, of tokens only."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1, :NUM_TOKENS].argmax()))
    return tokens[len(PROMPT) :]


def test_greedy_output_is_that_of_the_target_without_its_padding(padded: Path, draft: Path) -> None:
    trio = InMemoryTrio(runner(padded), runner(draft))
    assert trio.generate(request()).tokens == greedy_without_padding(padded, 40)


@pytest.mark.parametrize("mode", list(AcceptanceMode))
def test_what_only_pads_the_vocabulary_is_never_drawn_or_drafted(
    padded: Path, draft: Path, mode: AcceptanceMode
) -> None:
    trio = InMemoryTrio(runner(padded), runner(draft))
    for seed in range(4):
        answer = trio.generate(request(temperature=1.3, seed=seed, acceptance=mode))
        assert max(answer.tokens) < NUM_TOKENS
        assert answer.finished.speculation.num_accepted_tokens > 0
    assert trio.speculations.num_malformed == 0
    drafted = [
        token
        for frame in trio.frames
        for entries in getattr(frame, "entries", ())
        for piece in entries.pieces
        for token in piece.token_ids
    ]
    assert drafted
    assert max(drafted) < NUM_TOKENS


@pytest.mark.parametrize("mode", list(AcceptanceMode))
@pytest.mark.parametrize("widest", ["target", "draft"])
def test_a_target_and_a_draft_padded_to_different_widths_go_together(
    padded: Path, tmp_path: Path, widest: str, mode: AcceptanceMode
) -> None:
    narrow = write_tiny_model(tmp_path, seed=1, layers=1, max_positions=128)
    models = (padded, narrow) if widest == "target" else (narrow, padded)
    trio = InMemoryTrio(*map(runner, models))
    for seed in range(4):
        answer = trio.generate(request(temperature=1.5, seed=seed, acceptance=mode))
        assert answer.finished.speculation.speculating
        assert answer.finished.speculation.num_draft_tokens > 0
    assert trio.speculations.num_malformed == 0


def test_log_probabilities_leave_the_padding_out_and_are_finite(padded: Path) -> None:
    trio = InMemoryTrio(runner(padded), None)
    _, answer = trio.submit(
        GenerationRequest("r", (*PROMPT, 300, 41), max_tokens=4, logprobs=True, prompt_logprobs=True, top_logprobs=20)
    )
    trio.run(answer)
    prompt, *runs = answer.events
    reported = [*prompt.logprobs, *(entry for run in runs[:-1] for entry in run.logprobs)]  # type: ignore[union-attr]
    assert len(reported) == len(PROMPT) + 1 + 4
    assert min(entry.logprob for entry in reported) == prompt.logprobs[len(PROMPT) - 1].logprob == -9999.0  # type: ignore[union-attr]
    assert all(len(entry.top) == 20 and max(token for token, _ in entry.top) < NUM_TOKENS for entry in reported)


def test_a_verifier_computes_older_texts_and_resumes_older_answers_that_hold_padded_ids(padded: Path) -> None:
    settings = VerifierSettings(target=str(padded), speculator="", port=free_port(), kv_tokens=1024, drain_seconds=1)

    async def scenario() -> None:
        async with asyncio.timeout(2 * DEADLINE_SECONDS), house(VerifierWorker(settings), settings) as it:
            whole = verifier_pb2.VerifierServiceGenerateRequest(
                request_id="r", prompt_token_ids=[*PROMPT, 270], max_tokens=8
            )
            expected = await tokens_of(it.verifier.Generate(whole, timeout=DEADLINE_SECONDS))
            assert len(expected) == 8
            assert max(expected) < NUM_TOKENS
            begun = verifier_pb2.VerifierServiceGenerateRequest(request_id="r2", prompt_token_ids=PROMPT, max_tokens=9)
            resumed = verifier_pb2.ResumeRequest(generation=begun, emitted_token_ids=[270], num_rounds=1)
            assert await tokens_of(it.verifier.Resume(resumed, timeout=DEADLINE_SECONDS)) == expected

    asyncio.run(scenario())


async def tokens_of(call: object) -> list[int]:
    return [token async for response in call for token in response.run.token_ids]  # type: ignore[attr-defined]
