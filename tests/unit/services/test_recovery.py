"""Whatever link and speculator go through, sequences are opened anew, and none is given up that broke nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

import speculator_service.harvest as harvest
from saguaro.types import AcceptanceMode, GenerationRequest, SamplingParams, SpeculatorFrame, VerifierFrame
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio
from tests.unit.services.late_frames import LateTrio

REPETITIVE = tuple(range(97, 103)) * 6


def requests(count: int, **sampling: object) -> list[GenerationRequest]:
    """Prompts that repeat themselves and answers that are made to, so that n-grams are guessed whenever they may be."""
    bias = tuple((token, 12.0) for token in REPETITIVE[:3])
    return [
        GenerationRequest(
            f"r{number}",
            (65 + number, *REPETITIVE),
            SamplingParams(**{"temperature": 0.5, "seed": number, "logit_bias": bias, **sampling}),  # type: ignore[arg-type]
            max_tokens=80,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_reconnects_and_overloads_beside_guesses_quarantine_nobody(tiny: TinyModels, seed: int) -> None:
    asked = requests(5)
    plain = [InMemoryTrio(tiny.target, None).generate(request).tokens for request in asked]
    trio = LateTrio(tiny.target, tiny.draft, seed=seed, most_late=1, is_fixed=False)
    answers = [trio.submit(request)[1] for request in asked]
    trio.serve(*answers, reconnects=0.08, overloads=0.08)
    assert [answer.tokens for answer in answers] == plain
    assert not trio.quarantined
    assert trio.scheduler.num_diverged == 0
    trio.reconnect()  # what is still under way with the old stream is nobody's any more
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("temperature", [0.8, 1.3])
def test_late_frames_in_rejection_mode_leave_every_sequence_speculated(
    tiny: TinyModels, temperature: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "_MOST_KEPT_BYTES", 0)  # so that what is drafted just in time is drawn anew
    asked = requests(6, temperature=temperature, acceptance=AcceptanceMode.REJECTION, cached_scale=0.4, logit_bias=())
    trio = LateTrio(tiny.target, tiny.draft, seed=seed, most_late=3)
    answers = [trio.submit(request)[1] for request in asked]
    trio.serve(*answers)
    assert all(answer.finished.speculation.speculating for answer in answers)
    assert not trio.refusals
    assert sum(answer.finished.speculation.num_accepted_tokens for answer in answers) > 0


@pytest.mark.parametrize("seed", range(2))
def test_late_frames_where_no_logits_are_kept_leave_every_sequence_speculated(
    tiny: TinyModels, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "_MOST_KEPT_BYTES", 0)
    asked = requests(6, logit_bias=())
    plain = [InMemoryTrio(tiny.target, None).generate(request).tokens for request in asked]
    trio = LateTrio(tiny.target, tiny.draft, seed=seed, most_late=3)
    answers = [trio.submit(request)[1] for request in asked]
    trio.serve(*answers)
    assert [answer.tokens for answer in answers] == plain
    assert all(answer.finished.speculation.speculating for answer in answers)
    assert not trio.refusals


def test_a_speculator_with_other_tokens_says_so_and_the_sequence_is_opened_anew(tiny: TinyModels) -> None:
    request = requests(1, logit_bias=())[0]
    plain = InMemoryTrio(tiny.target, None).generate(request).tokens
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, answer = trio.submit(request)
    for step in range(1000):
        if answer.is_over:
            break
        if step == 8:
            (session,) = trio.stream.sessions.values()
            session.prefix[3] += 1  # a bit fell over
            session.prefix_hash ^= 1
        trio.step()
    assert answer.tokens == plain
    assert trio.scheduler.num_diverged == 1
    assert answer.finished.speculation.speculating
    assert sum(len(frame.opens) for frame in trio.frames if isinstance(frame, VerifierFrame)) == 2


def test_a_verifier_that_sends_no_hash_is_served(tiny: TinyModels) -> None:
    request = requests(1, logit_bias=())[0]
    trio = InMemoryTrio(tiny.target, tiny.draft)
    commits = [0]

    def without_hash(stream: object, frame: VerifierFrame) -> None:
        commits[0] += len(frame.commits)
        bare = tuple(replace(commit, prefix_hash=None) for commit in frame.commits)
        trio.scheduler.submit(trio.stream, replace(frame, commits=bare))

    trio._to_speculator = without_hash  # type: ignore[method-assign]
    answer = trio.generate(request)
    assert commits[0] > 0
    assert answer.finished.speculation.cache_hits > 0
    assert all(not frame.statuses for frame in trio.frames if isinstance(frame, SpeculatorFrame))
