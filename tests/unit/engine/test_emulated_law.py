"""The laws of emulated pairs. Draws are fixed; a false alarm of a test had a chance below 1e-4 when it was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from saguaro.core.fan_out import miss_probability
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import race
from saguaro.emulation.profile import Role
from saguaro.emulation.tokenizer import EOS_ID, FIRST_WORD_ID
from saguaro.engine.emulated_law import NUM_CANDIDATES, PairLaw
from saguaro.types import SamplingParams
from tests.unit.engine.emulated_pair import alone, places, profile, random_hashes, runner

NUM_PREFIXES = 40_000
ALARM = 1e-4


def ranks_of_the_target_token(acceptance_rate: float, rank_exponent: float) -> np.ndarray:
    """Number of tokens that the draft prefers to the target's, for many prefixes."""
    law = PairLaw(profile(acceptance_rate=acceptance_rate, rank_exponent=rank_exponent))
    hashes = random_hashes(NUM_PREFIXES, seed=1)
    _, values = law.logits(hashes, Role.DRAFT)
    return (values > values[:, :1]).sum(axis=1)


@pytest.mark.parametrize("acceptance_rate", [0.0, 0.3, 0.84, 1.0])
def test_the_draft_ranks_the_targets_token_first_as_often_as_the_profile_says(acceptance_rate: float) -> None:
    num_first = int((ranks_of_the_target_token(acceptance_rate, 1.0) == 0).sum())
    assert stats.binomtest(num_first, NUM_PREFIXES, acceptance_rate).pvalue > ALARM


@pytest.mark.parametrize("rank_exponent", [0.5, 1.4, 3.0])
def test_its_rank_among_the_others_follows_the_miss_law(rank_exponent: float) -> None:
    ranks = ranks_of_the_target_token(0.4, rank_exponent)
    ranks = ranks[ranks > 0]
    # Rank R among the draft's candidates without its first: P(R > F) = (1 + F)^-r. Bins that hold enough to be tested.
    edges = [edge for edge in (0, 1, 2, 3, 5, 8, 16, 32) if len(ranks) * miss_probability(edge, rank_exponent) > 10]
    above = np.array([miss_probability(edge, rank_exponent) for edge in edges] + [0.0])
    counts, _ = np.histogram(ranks, bins=[edge + 1 for edge in edges] + [1000])
    assert len(counts) >= 6
    assert stats.chisquare(counts, -len(ranks) * np.diff(above)).pvalue > ALARM


def test_acceptance_and_rank_are_independent_of_the_token_and_of_each_other() -> None:
    law = PairLaw(profile(acceptance_rate=0.5))
    token_ids, values = law.logits(random_hashes(NUM_PREFIXES, seed=2), Role.DRAFT)
    place = (values > values[:, :1]).sum(axis=1)
    table = np.histogram2d(token_ids[:, 0] % 8, np.minimum(place, 4), bins=[8, 5])[0]
    assert stats.chi2_contingency(table).pvalue > ALARM


def test_the_targets_tokens_are_uniform_over_the_words() -> None:
    changes = {"vocabulary": FIRST_WORD_ID + 142}
    token_ids, _ = PairLaw(profile(**changes)).logits(random_hashes(NUM_PREFIXES, seed=3), Role.TARGET)
    counts = np.bincount(token_ids[:, 0] - FIRST_WORD_ID, minlength=142)
    assert len(counts) == 142
    assert stats.chisquare(counts).pvalue > ALARM


def test_candidates_are_distinct_words_of_which_the_first_is_the_targets_token() -> None:
    token_ids, values = PairLaw(profile()).logits(random_hashes(500, seed=4), Role.TARGET)
    assert token_ids.min() >= FIRST_WORD_ID
    assert token_ids.max() < profile().vocabulary
    assert all(len(set(row)) == NUM_CANDIDATES for row in token_ids.tolist())
    assert (values.argmax(axis=1) == 0).all()


def test_no_answer_ends_unless_the_profile_says_how_often() -> None:
    hashes = random_hashes(NUM_PREFIXES, seed=5)
    assert EOS_ID not in PairLaw(profile()).logits(hashes, Role.TARGET)[0]
    token_ids, _ = PairLaw(profile(eos_probability=0.02)).logits(hashes, Role.TARGET)
    num_ends = int((token_ids[:, 0] == EOS_ID).sum())
    assert stats.binomtest(num_ends, NUM_PREFIXES, 0.02).pvalue > ALARM


def test_target_and_draft_runners_agree_as_often_as_the_profile_says_along_a_sequence() -> None:
    token_ids = np.random.default_rng(6).integers(0, 400, 800).tolist()
    target, draft = (alone(runner(role, block_size=16, acceptance_rate=0.84), token_ids) for role in Role)
    place = places(draft, target.argmax(-1))
    assert stats.binomtest(int((place == 0).sum()), len(token_ids), 0.84).pvalue > ALARM


def test_a_warm_target_chooses_by_the_laws_of_its_logits() -> None:
    rows = alone(runner(), [300]).expand(4000, -1)
    sampling = RowSampling.build([SamplingParams(temperature=1.0, seed=9)] * 4000, list(range(4000)))
    chosen = race(rows, sampling)
    probability = float(rows[0].softmax(-1).max())
    assert 0.8 < probability < 0.86
    num_first = int((chosen == rows[0].argmax()).sum())
    assert stats.binomtest(num_first, 4000, probability).pvalue > ALARM


def test_noise_couples_a_warm_draft_to_a_warm_target() -> None:
    token_ids = np.random.default_rng(7).integers(0, 400, 800).tolist()
    sampling = RowSampling.build([SamplingParams(temperature=1.0, seed=3)] * 800, list(range(800)))
    target, draft = (race(alone(runner(role, block_size=16), token_ids), sampling) for role in Role)
    # Independent draws would agree where both take their first token, 0.7 * 0.83 ** 2 = 0.48, and hardly elsewhere.
    assert float((target == draft).float().mean()) > 0.55
    assert not torch.equal(target, draft)
