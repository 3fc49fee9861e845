"""A real trio on emulated devices: it answers, hits, and says the same whatever goes wrong beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.engine.emulated_pace import CRASH_EXIT_CODE
from tests.integration.emulated import emulated
from tests.integration.speculating import await_speculation

CHAT = [{"role": "user", "content": "Why is the sky blue?"}]
NUM_TOKENS = 200


def ask(trio: Trio, **options: object) -> Answer:
    with Client(trio.gateway_address) as client:
        return client.generate(CHAT, max_tokens=NUM_TOKENS, **options).finish()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trio(emulated_trio: Trio) -> Trio:
    return emulated_trio


@pytest.fixture(scope="module")
def plain(trio: Trio) -> Answer:
    return ask(trio, speculation=False)


def test_it_answers_in_words_under_the_profiles_name(trio: Trio, plain: Answer) -> None:
    assert plain.model == "emulated-mine"
    assert plain.num_generated_tokens == NUM_TOKENS
    assert plain.speculation.num_rounds == NUM_TOKENS - 1
    assert all(word.isalpha() for word in plain.text.split())
    assert len(plain.text.split()) == NUM_TOKENS


def test_plain_decoding_takes_the_profiles_time(plain: Answer) -> None:
    # No faster than the forwards; how much slower depends on who else uses the machine.
    assert 0.3 * 1000 / 15 < plain.tokens_per_second <= 1000 / 15


def test_speculated_tokens_are_the_plain_ones_with_hits_and_faster(trio: Trio, plain: Answer) -> None:
    answer = ask(trio)
    assert answer.token_ids == plain.token_ids
    assert answer.speculation.cache_hits > 0
    assert answer.speculation.num_accepted_tokens > 0.4 * answer.speculation.num_draft_tokens
    assert answer.tokens_per_second > 1.2 * plain.tokens_per_second


def test_warm_speculated_tokens_are_the_plain_ones(trio: Trio) -> None:
    plain = ask(trio, temperature=0.8, seed=4, speculation=False)
    answer = ask(trio, temperature=0.8, seed=4)
    assert answer.token_ids == plain.token_ids
    assert answer.speculation.num_accepted_tokens > 0


@pytest.mark.slow
def test_stalls_and_jitter_of_both_models_leave_the_tokens(tmp_path: Path, plain: Answer) -> None:
    faults = (
        "[faults.target]\njitter_sigma = 0.5\nstall_every = 20\nstall_ms = 60\n"
        "[faults.draft]\njitter_sigma = 0.5\nstall_every = 40\nstall_ms = 150"
    )
    with emulated(tmp_path, faults=faults, target_ms=4.0) as faulty:
        await_speculation(faulty)
        answer = ask(faulty)
    assert answer.token_ids == plain.token_ids
    assert answer.speculation.num_accepted_tokens > 0


@pytest.mark.slow
def test_a_crash_of_the_speculator_in_mid_stream_leaves_the_tokens(tmp_path: Path, plain: Answer) -> None:
    with emulated(tmp_path, faults="[faults.draft]\ncrash_at = 100") as faulty:
        await_speculation(faulty)
        answer = ask(faulty)
        assert faulty.processes["speculator"].exit_code == CRASH_EXIT_CODE
    assert answer.token_ids == plain.token_ids
    assert answer.speculation.num_accepted_tokens > 0
    assert not answer.speculation.speculating
