"""Rejection mode under constraints: answers keep to them, and follow the target's law given them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from saguaro.types import AcceptanceMode, Constraint, ConstraintKind, FinishReason, GenerationRequest
from tests.tiny_models import EOS_ID
from tests.unit.core.law import assert_follows
from tests.unit.services.conftest import TinyModels
from tests.unit.services.constrained import CONSTRAINTS, PROMPT, House

LETTERS, LENGTH, SEQUENCES = "abcd", 3, 640
TEMPERATURE = 3.0  # spreads the four letters


@pytest.fixture(scope="module")
def house(tiny: TinyModels) -> House:
    return House.of(tiny)


def in_rejection_mode(request: GenerationRequest, cached_scale: float = 1.0) -> GenerationRequest:
    sampling = replace(request.sampling, acceptance=AcceptanceMode.REJECTION, cached_scale=cached_scale)
    return replace(request, sampling=sampling)


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_answers_keep_to_the_constraint_and_the_cache_hits(house: House, kind: str) -> None:
    trio, hits = house.trio(budget=16), 0
    for seed in range(4):
        request = in_rejection_mode(house.request(CONSTRAINTS[kind], temperature=0.8, seed=seed), cached_scale=0.5)
        answer = trio.generate(request)
        house.assert_kept(answer, CONSTRAINTS[kind])
        hits += answer.finished.speculation.cache_hits
    assert hits > 0
    trio.assert_all_blocks_free()


def joint_law(house: House, letters: list[int]) -> NDArray[np.float64]:
    """Of all words of LENGTH letters, by transformers' own forward: at each place the law given that it is a letter."""
    model = AutoModelForCausalLM.from_pretrained(house.models.target, dtype=torch.float32)
    words = torch.tensor(list(itertools.product(letters, repeat=LENGTH)))
    with torch.no_grad():
        texts = torch.cat((torch.tensor([PROMPT]).expand(len(words), -1), words), dim=1)
        logits = model(texts).logits[:, len(PROMPT) - 1 : -1].double()
    steps = (logits[:, :, letters] / TEMPERATURE).log_softmax(-1)
    places = torch.tensor([[letters.index(token) for token in word] for word in words.tolist()])
    joint: NDArray[np.float64] = steps.gather(2, places.unsqueeze(2)).sum((1, 2)).exp().numpy()
    return joint


@pytest.mark.parametrize("mode", list(AcceptanceMode))
def test_the_joint_law_is_the_target_s_given_the_constraint(house: House, mode: AcceptanceMode) -> None:
    constraint = Constraint(ConstraintKind.REGEX, f"[{LETTERS}]{{{LENGTH}}}")
    letters = house.walker.encode(LETTERS)
    trio = house.trio("random_draft", lookahead=2, budget=3, max_running=64, max_waiting=SEQUENCES)
    answers = []
    for seed in range(SEQUENCES):
        request = in_rejection_mode(house.request(constraint, temperature=TEMPERATURE, seed=seed), (1.0, 0.4)[seed % 2])
        sampling = replace(request.sampling, acceptance=mode, logit_bias=())
        answers.append(trio.submit(replace(request, sampling=sampling))[1])
    trio.run(*answers)
    assert sum(answer.finished.speculation.cache_hits for answer in answers) > SEQUENCES / 10
    assert sum(answer.finished.speculation.cache_misses for answer in answers) > SEQUENCES / 10
    assert all(answer.finished.reason is FinishReason.STOP and answer.tokens[-1] == EOS_ID for answer in answers)
    words = [[letters.index(token) for token in answer.tokens[:-1]] for answer in answers]
    cells = np.array(words) @ len(letters) ** np.arange(LENGTH)[::-1]
    # A false alarm once in 10,000, see tests/unit/core/law.py.
    assert_follows(np.bincount(cells, minlength=len(letters) ** LENGTH), joint_law(house, letters))
