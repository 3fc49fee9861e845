"""The services in rejection mode, on models whose joint law is known exactly: what they emit follows the target's law.

Over all VOCAB^LENGTH continuations of one prompt, thousands of seeds each; a false alarm once in 10,000 a test, see
tests/unit/core/law.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from saguaro.types import (
    AcceptanceMode,
    GenerationRequest,
    SamplingParams,
    SpeculationPiece,
    SpeculationReport,
    TokenProvenance,
)
from speculator_service.branches import Branches
from tests.tiny_models import noisy_copy, write_tiny_model
from tests.unit.core.law import assert_follows
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio, Pace

VOCAB, LENGTH, SEQUENCES = 4, 4, 1500
PROMPT = (0, 1, 2, 0, 1)
TEMPERATURE = 1.5


@dataclass(frozen=True)
class KnownPair:
    target: Path
    draft: Path
    joint: NDArray[np.float64]  # [VOCAB^LENGTH], the target's


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KnownPair:
    folder = tmp_path_factory.mktemp("known-pair")
    size: dict[str, Any] = {"layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "vocab": VOCAB, "max_positions": 32}
    target = write_tiny_model(folder / "target", seed=5, **size)
    draft = noisy_copy(target, folder / "draft", noise=0.4)
    return KnownPair(target, draft, joint_law(target))


def joint_law(folder: Path) -> NDArray[np.float64]:
    """By transformers' own forward over every continuation."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    continuations = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))
    texts = torch.cat((torch.tensor([PROMPT]).expand(len(continuations), -1), continuations), dim=1)
    with torch.no_grad():
        logits = model(texts).logits[:, len(PROMPT) - 1 : -1].double()
    steps = (logits / TEMPERATURE).log_softmax(-1)
    joint: NDArray[np.float64] = steps.gather(2, continuations.unsqueeze(2)).sum((1, 2)).exp().numpy()
    return joint


def request_of(seed: int, acceptance: AcceptanceMode, cached_scale: float | None) -> GenerationRequest:
    sampling = SamplingParams(TEMPERATURE, seed=seed, acceptance=acceptance, cached_scale=cached_scale)
    return GenerationRequest(f"r{seed}", PROMPT, sampling, max_tokens=LENGTH)


def answers_of(trio: InMemoryTrio, cached_scale: float | None = None) -> list[Answer]:
    """Of as many seeds as there are sequences."""
    requests = [request_of(seed, AcceptanceMode.REJECTION, cached_scale) for seed in range(SEQUENCES)]
    answers = [trio.submit(item)[1] for item in requests]
    trio.run(*answers)
    return answers


def trio_of(pair: KnownPair, **options: Any) -> InMemoryTrio:
    usual: dict[str, Any] = {"draft": pair.draft, "lookahead": 2, "budget": 3, "max_running": 64}
    return InMemoryTrio(pair.target, max_waiting=SEQUENCES, **usual | options)


def assert_joint_law(answers: list[Answer], pair: KnownPair) -> None:
    cells = np.array([answer.tokens for answer in answers]) @ VOCAB ** np.arange(LENGTH)[::-1]
    assert_follows(np.bincount(cells, minlength=VOCAB**LENGTH), pair.joint)


def total(answers: list[Answer], figure: Callable[[SpeculationReport], int]) -> int:
    return sum(figure(answer.finished.speculation) for answer in answers)


def num_from(answers: list[Answer], provenance: TokenProvenance) -> int:
    return sum(answer.provenance.count(provenance) for answer in answers)


SOME = SEQUENCES // 10  # so many times at least what a test is about must have happened


@pytest.mark.parametrize("cached_scale", [1.0, pytest.param(0.5, marks=pytest.mark.slow), 0.0])
def test_the_joint_law_holds_over_hits_and_just_in_time_drafts(pair: KnownPair, cached_scale: float) -> None:
    answers = answers_of(trio_of(pair), cached_scale)
    assert num_from(answers, TokenProvenance.CACHED_DRAFT) > SOME
    assert num_from(answers, TokenProvenance.LATE_DRAFT) > SOME
    assert_joint_law(answers, pair)


@pytest.mark.parametrize("cached_scale", [1.0, pytest.param(0.5, marks=pytest.mark.slow), 0.0])
def test_the_joint_law_holds_where_misses_go_on_plainly(pair: KnownPair, cached_scale: float) -> None:
    answers = answers_of(trio_of(pair, just_in_time_ms=0), cached_scale)
    assert num_from(answers, TokenProvenance.CACHED_DRAFT) > SOME
    assert total(answers, lambda report: report.cache_misses) > SOME
    assert num_from(answers, TokenProvenance.LATE_DRAFT) == 0
    assert_joint_law(answers, pair)


def test_the_joint_law_holds_where_nothing_is_ready_in_time(pair: KnownPair) -> None:
    answers = answers_of(trio_of(pair, pace=Pace.LATE), 0.5)  # foretold branches are inherited, with their laws
    assert num_from(answers, TokenProvenance.LATE_DRAFT) > SOME
    assert_joint_law(answers, pair)


def test_the_joint_law_holds_over_n_grams_and_nothing(pair: KnownPair) -> None:
    answers = answers_of(trio_of(pair, draft=None, is_fixed=False, max_running=4))  # in small batches guesses pay
    assert num_from(answers, TokenProvenance.NGRAM_DRAFT) > SOME / 2
    assert_joint_law(answers, pair)


@pytest.mark.slow
def test_the_joint_law_holds_over_drafts_for_another_bonus_token(pair: KnownPair) -> None:
    trio = trio_of(pair, just_in_time_ms=0, budget=2, is_fixed=False, max_running=4)  # in small batches guesses pay
    answers = answers_of(trio, 0.5)
    assert num_from(answers, TokenProvenance.NEIGHBOUR_DRAFT) > SOME / 2
    assert_joint_law(answers, pair)


def test_each_mode_s_joint_law_holds_in_one_batch(pair: KnownPair) -> None:
    trio = trio_of(pair)
    modes = [list(AcceptanceMode)[seed % 2] for seed in range(SEQUENCES)]
    scales = [(None, 0.8, 0.3)[seed % 3] for seed in range(SEQUENCES)]
    kinds = zip(range(SEQUENCES), modes, scales, strict=True)
    answers = [trio.submit(request_of(*kind))[1] for kind in kinds]
    trio.run(*answers)
    for mode in AcceptanceMode:
        own = [answer for answer, its_mode in zip(answers, modes, strict=True) if its_mode is mode]
        assert num_from(own, TokenProvenance.CACHED_DRAFT) > SOME / 2
        assert_joint_law(own, pair)


def test_laws_of_another_branch_are_caught(pair: KnownPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would say little. Each token is in the wrong law too, so that no check refuses it."""
    honest = Branches.unsent_pieces

    def mixed_up(self: Branches) -> list[SpeculationPiece]:
        pieces = honest(self)
        others = pieces[1:] + pieces[:1]
        return [replace(piece, distributions=other.distributions) for piece, other in zip(pieces, others, strict=True)]

    monkeypatch.setattr(Branches, "unsent_pieces", mixed_up)
    answers = answers_of(trio_of(pair))
    assert all(answer.finished.speculation.speculating for answer in answers)
    with pytest.raises(AssertionError):
        assert_joint_law(answers, pair)
