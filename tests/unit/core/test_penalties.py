"""Bias, penalties, bans and masks: transformers' own processors where it has them, definitions where it has not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as theirs

from saguaro.core.penalties import RuledRows, SequenceRules, TokenCounts, apply_rules
from saguaro.core.row_sampling import RowSampling
from saguaro.core.sampling import processed_log_probs
from saguaro.types import SamplingParams

VOCAB = 300
PROMPT = (5, 6, 7, 5, 8)
OUTPUT = (7, 9, 9, 9, 10)
STOPS = (11, 12)


def random_logits(rows: int, seed: int = 0) -> Tensor:
    return 4 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def ruled(
    sampling: SamplingParams, logits: Tensor, following: list[tuple[int, ...]], output: tuple[int, ...] = OUTPUT
) -> Tensor:
    rules = SequenceRules.of(sampling, PROMPT, len(PROMPT))
    assert rules is not None
    rules.extend(output)
    return apply_rules(logits, [RuledRows(slice(0, len(logits)), rules, following)])


def of_transformers(sampling: SamplingParams, logits: Tensor, output: tuple[int, ...]) -> Tensor:
    """One row by transformers' processors, in the order in which its `generate` puts them together."""
    processors: list[Any] = []
    if sampling.logit_bias:
        bias = {(token,): value for token, value in sampling.logit_bias}
        processors.append(theirs.SequenceBiasLogitsProcessor(bias))
    if sampling.repetition_penalty != 1:
        processors.append(theirs.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.min_tokens:
        stops = torch.tensor(sampling.stop_token_ids)
        processors.append(theirs.MinNewTokensLengthLogitsProcessor(len(PROMPT), sampling.min_tokens, stops))
    processors.append(theirs.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(theirs.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(theirs.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        processors.append(theirs.MinPLogitsWarper(sampling.min_p))
    tokens = torch.tensor([[*PROMPT, *output]])
    scores: Tensor = theirs.LogitsProcessorList(processors)(tokens, logits)
    return scores.log_softmax(-1)


OF_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.05},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "repetition_reward": {"repetition_penalty": 0.8},
    "logit_bias": {"logit_bias": ((5, 4.0), (9, -100.0), (40, 2.5))},
    "min_tokens": {"min_tokens": 8, "stop_token_ids": STOPS},
}
PAIRS = [(a, b) for a in OF_TRANSFORMERS for b in OF_TRANSFORMERS if a <= b]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_each_parameter_and_each_pair_processes_a_run_s_rows_as_transformers_does(one: str, other: str) -> None:
    sampling = SamplingParams(**{"temperature": 1.0, **OF_TRANSFORMERS[one], **OF_TRANSFORMERS[other]})
    run = (9, 41, 5, 41)
    following = [run[:i] for i in range(len(run) + 1)]
    logits = random_logits(len(following))
    rules = SequenceRules.of(sampling, PROMPT, len(PROMPT))
    if rules is not None:
        rules.extend(OUTPUT)
    parts = [] if rules is None else [RuledRows(slice(0, len(logits)), rules, following)]
    params = RowSampling.build([sampling] * len(logits), range(len(logits)))
    ours = processed_log_probs(apply_rules(logits, parts), params)
    for row, tokens in enumerate(following):
        expected = of_transformers(sampling, logits[row : row + 1], (*OUTPUT, *tokens))
        assert torch.equal(ours[row : row + 1].isneginf(), expected.isneginf())
        torch.testing.assert_close(ours[row : row + 1], expected)


def test_presence_and_frequency_count_the_output_alone_and_each_row_s_part_of_the_run() -> None:
    logits = torch.zeros(3, VOCAB)
    sampling = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    changed = ruled(sampling, logits, [(), (9,), (9, 50)])
    assert changed[:, 5].tolist() == [0.0, 0.0, 0.0]  # in the prompt only
    assert changed[:, 7].tolist() == [-0.75] * 3  # once
    assert changed[:, 9].tolist() == [-1.25, -1.5, -1.5]  # three times, and once more in the run
    assert changed[:, 50].tolist() == [0.0, 0.0, -0.75]
    assert ruled(sampling, logits, [()], output=())[0].abs().sum() == 0


def test_presence_and_frequency_come_after_the_repetition_penalty_and_the_bias_before() -> None:
    logits = torch.full((1, VOCAB), 2.0)
    sampling = SamplingParams(
        repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, logit_bias=((9, -4.0), (7, 1.0))
    )
    changed = ruled(sampling, logits, [()])[0]
    assert changed[7].item() == (2.0 + 1.0) / 2 - 0.75
    assert changed[9].item() == (2.0 - 4.0) * 2 - 1.25  # negative by the bias: multiplied


def test_end_tokens_are_impossible_until_the_output_has_min_tokens() -> None:
    sampling = SamplingParams(min_tokens=len(OUTPUT) + 2, stop_token_ids=STOPS)
    changed = ruled(sampling, random_logits(4), [(), (1,), (1, 2), (1, 2, 3)])
    assert changed[:, STOPS].isneginf().all(-1).tolist() == [True, True, False, False]
    assert changed.isneginf().sum() == 2 * len(STOPS)


@dataclass(frozen=True)
class Allowed:
    flags: torch.Tensor  # [rows, vocab] bool

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.masked_fill(~self.flags, -torch.inf)


def allowed(*rows: list[int]) -> Allowed:
    flags = torch.zeros(len(rows), VOCAB, dtype=torch.bool)
    for row, tokens in enumerate(rows):
        flags[row, tokens] = True
    return Allowed(flags)


def test_a_grammar_makes_what_it_forbids_impossible_with_and_without_rules() -> None:
    rules = SequenceRules.of(SamplingParams(repetition_penalty=1.5), PROMPT, len(PROMPT))
    assert rules is not None
    grammar, logits = allowed([3], [9, 77]), random_logits(2)
    for parts in ([], [RuledRows(slice(0, 2), rules, [(), (1,)])]):
        changed = apply_rules(logits, parts, grammar)
        assert torch.equal(changed.isfinite(), grammar.flags)
        assert torch.equal(changed[grammar.flags], apply_rules(logits, parts)[grammar.flags])


def test_a_grammar_that_allows_nothing_but_banned_tokens_wins_in_that_row_alone() -> None:
    rules = SequenceRules.of(SamplingParams(min_tokens=9, stop_token_ids=STOPS), PROMPT, len(PROMPT))
    assert rules is not None
    changed = apply_rules(
        random_logits(2), [RuledRows(slice(0, 2), rules, [(), (1,)])], allowed([STOPS[0]], [STOPS[0], 9])
    )
    assert changed.isfinite().nonzero().tolist() == [[0, STOPS[0]], [1, 9]]


def test_a_run_s_rows_equal_the_same_rows_one_at_a_time_bit_for_bit() -> None:
    sampling = SamplingParams(
        repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.7, logit_bias=((9, 1.5),), min_tokens=7,
        stop_token_ids=STOPS,
    )  # fmt: skip
    run, logits = (9, 60, 60, 7), random_logits(5)
    together = ruled(sampling, logits, [run[:i] for i in range(5)])
    for row in range(5):
        alone = ruled(sampling, logits[row : row + 1], [()], output=(*OUTPUT, *run[:row]))
        assert torch.equal(together[row : row + 1], alone)


def test_rows_of_other_sequences_and_the_model_s_own_logits_are_left_as_they_were() -> None:
    logits = random_logits(4)
    before = logits.clone()
    rules = SequenceRules.of(SamplingParams(frequency_penalty=2.0), PROMPT, len(PROMPT))
    assert rules is not None
    rules.extend(OUTPUT)
    changed = apply_rules(logits, [RuledRows(slice(1, 3), rules, [(), ()])])
    assert torch.equal(logits, before)
    assert torch.equal(changed[[0, 3]], before[[0, 3]])
    assert not torch.equal(changed[1:3], before[1:3])


def test_a_batch_without_rules_is_handed_through_uncopied() -> None:
    logits = random_logits(2)
    assert apply_rules(logits, []) is logits


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, seed=3, choice=2),
        SamplingParams(stop_token_ids=STOPS),  # they end the sequence; nothing happens to the logits
        SamplingParams(min_tokens=4),  # nothing could end it before
    ],
)
def test_what_does_not_change_logits_by_the_sequence_makes_no_rules(sampling: SamplingParams) -> None:
    assert SequenceRules.of(sampling, PROMPT, len(PROMPT)) is None
    assert SequenceRules.of(replace(sampling, presence_penalty=0.1), PROMPT, len(PROMPT)) is not None


def test_counts_grow_beyond_any_first_size() -> None:
    counts = TokenCounts()
    for token in range(1000):
        counts.add(token, token % 3)
        counts.add(token, 1)
    token_ids, occurrences = counts.tensors(torch.device("cpu"))
    assert token_ids.tolist() == list(range(1000))
    assert occurrences.tolist() == [token % 3 + 1 for token in range(1000)]
    assert (counts.of(2), counts.of(5000)) == (3, 0)


def test_greedy_follows_the_processed_logits() -> None:
    logits = torch.tensor([[3.0, 2.9, 0.0, -1.0]])
    rules = SequenceRules.of(SamplingParams(repetition_penalty=1.1), [0], 1)
    changed = apply_rules(logits, [RuledRows(slice(0, 1), rules, [()])])
    greedy = processed_log_probs(changed, RowSampling.build([SamplingParams()], [0]))
    assert greedy.tolist() == [[-math.inf, 0.0, -math.inf, -math.inf]]
