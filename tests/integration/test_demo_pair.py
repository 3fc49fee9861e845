"""The main job on the embedded models: three processes, one answer, the target's own."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.types import LookupResult, TokenProvenance
from tests.integration.prompts import PROMPTS, chat
from tests.integration.reference import first_divergence, greedy


def ask(trio: Trio, prompt: str, **options: object) -> Answer:
    with Client(trio.gateway_address) as client:
        return client.generate(chat(prompt), include_rounds=True, **options).finish()  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_greedy_answers_are_the_targets_own(demo_trio: Trio, prompt: str) -> None:
    answer = ask(demo_trio, prompt, max_tokens=48)
    assert answer.num_generated_tokens > 5
    assert answer.speculation.speculating
    assert first_divergence(answer.prompt_token_ids, answer.token_ids) is None


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_four_greedy_answers_equal_transformers_generate(demo_trio: Trio) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: ask(demo_trio, prompt, max_tokens=96), PROMPTS))
    assert len(answers) == 24
    num_equal = 0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        if list(answer.token_ids) == greedy(answer.prompt_token_ids, 96):
            num_equal += 1
        else:
            assert first_divergence(answer.prompt_token_ids, answer.token_ids) is None, prompt
    num_tokens = sum(answer.num_generated_tokens for answer in answers)
    print(f"{num_equal} of 24 answers equal transformers' ({num_tokens} tokens); the others part at a near tie")


def test_sampled_answers_are_the_same_without_speculation(demo_trio: Trio) -> None:
    options = {"temperature": 0.8, "seed": 7, "max_tokens": 32}
    drafted, plain = (ask(demo_trio, PROMPTS[4], speculation=on, **options) for on in (True, False))
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text
    assert drafted.speculation.num_accepted_tokens > 0
    assert not any(report.num_draft_tokens for report in plain.speculation.rounds)
    assert plain.speculation.reason == "the request asked for no speculation"
    assert ask(demo_trio, PROMPTS[4], temperature=0.8, seed=8, max_tokens=32).token_ids != plain.token_ids


def test_hits_happen_and_their_drafting_is_off_the_critical_path(demo_trio: Trio) -> None:
    answer = ask(demo_trio, PROMPTS[0], max_tokens=96, ignore_eos=True)
    rounds = answer.speculation.rounds
    # The last round may have no room left for a draft token.
    after_hits = [after for before, after in pairwise(rounds[:-1]) if before.lookup is LookupResult.HIT]
    assert len(after_hits) >= 3
    # A hit's next forward starts at once: less than a tenth of the time that drafting its speculation took.
    waits, drafting = sum(item.wait_ns for item in after_hits), sum(item.drafting_ns for item in after_hits)
    print(f"{len(after_hits)} hits: waited {waits / 1e6:.1f} ms in all for {drafting / 1e6:.1f} ms of drafting")
    assert all(item.num_draft_tokens > 0 for item in after_hits)
    assert waits < 0.1 * drafting


def test_eight_concurrent_answers_equal_their_solo_runs(demo_trio: Trio) -> None:
    lengths = [6 + 2 * i for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda item: ask(demo_trio, item[0], max_tokens=item[1]), zip(PROMPTS, lengths, strict=False))
        )
    for answer in together:
        assert first_divergence(answer.prompt_token_ids, answer.token_ids) is None


def test_the_command_line_prints_one_json_object(demo_trio: Trio) -> None:
    command = [sys.executable, "-m", "saguaro.cli", "generate", "Name one colour.", "--json"]
    output = subprocess.run(
        [*command, "--address", demo_trio.gateway_address, "--max-tokens", "24", "--seed", "3"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    document = json.loads(output)
    expected = (
        "text token_ids num_tokens tokens_per_second ttft_seconds num_rounds mean_acceptance_length cache_hits "
        "cache_misses cache_late seed speculating"
    )
    assert set(expected.split()) <= set(document)
    assert document["num_tokens"] == len(document["token_ids"]) > 0
    assert document["seed"] == 3
    assert document["speculating"] is True
    assert first_divergence(document["prompt_token_ids"], document["token_ids"]) is None


def test_provenance_adds_up(demo_trio: Trio) -> None:
    with Client(demo_trio.gateway_address) as client:
        stream = client.generate(chat(PROMPTS[2]), max_tokens=40)
        provenance = [kind for delta in stream for kind in delta.provenance]
    drafted = [kind for kind in provenance if kind not in (TokenProvenance.BONUS, TokenProvenance.PLAIN)]
    assert len(provenance) == stream.result.num_generated_tokens
    assert len(drafted) == stream.result.speculation.num_accepted_tokens
