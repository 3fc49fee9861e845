"""Acceptance modes side by side: who is speculated in which, and what a broken law costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from saguaro.types import (
    AcceptanceMode,
    GenerationRequest,
    SamplingParams,
    SparseDistribution,
    SpeculatorFrame,
    TokenProvenance,
)
from saguaro.v1 import speculator_pb2
from saguaro.wire.speculator import speculator_frame_from_proto, speculator_frame_to_proto
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio, Pace

PROMPT = tuple(range(40, 63))
COUPLED, REJECTION = AcceptanceMode.COUPLED, AcceptanceMode.REJECTION

Tamper = Callable[[speculator_pb2.SpeculationEntries], None]


def request(acceptance: AcceptanceMode | None, temperature: float = 0.9, max_tokens: int = 30) -> GenerationRequest:
    sampling = SamplingParams(temperature, seed=11, acceptance=acceptance)
    return GenerationRequest("r", PROMPT, sampling, max_tokens=max_tokens, include_rounds=True)


def laws_in(trio: InMemoryTrio) -> Iterator[SparseDistribution]:
    for frame in trio.frames:
        if isinstance(frame, SpeculatorFrame):
            for entries in frame.entries:
                for piece in entries.pieces:
                    yield from piece.distributions


@pytest.mark.parametrize("pace", list(Pace))
def test_at_temperature_0_rejection_says_what_coupled_says_and_sends_no_laws(tiny: TinyModels, pace: Pace) -> None:
    plain = InMemoryTrio(tiny.target, None).generate(request(COUPLED, 0.0)).tokens
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace)
    answer = trio.generate(request(REJECTION, 0.0))
    assert answer.tokens == plain
    assert (answer.finished.speculation.num_accepted_tokens > 0) == (pace is not Pace.HUNG)
    assert not any(laws_in(trio))
    trio.assert_all_blocks_free()


def test_a_draft_that_is_the_target_is_accepted_nearly_always(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.target, lookahead=3, budget=16)
    sampling = SamplingParams(
        0.8, 0.95, 24, 11, repetition_penalty=1.2, logit_bias=((90, 2.0),), min_p=0.01, acceptance=REJECTION
    )
    report = trio.generate(GenerationRequest("r", PROMPT, sampling, max_tokens=60)).finished.speculation
    # By float16 and the differences of two forwards alone would a token be refused.
    assert report.num_accepted_tokens > 0.95 * report.num_draft_tokens > 0
    trio.assert_all_blocks_free()


def test_a_coupled_answer_does_not_change_beside_one_in_rejection_mode(tiny: TinyModels) -> None:
    alone = InMemoryTrio(tiny.target, None).generate(request(None)).tokens
    trio = InMemoryTrio(tiny.target, tiny.draft)
    answers = [trio.submit(request(mode))[1] for mode in (REJECTION, None, REJECTION, COUPLED)]
    trio.run(*answers)
    assert [answer.tokens for answer in answers[1::2]] == [alone, alone]
    for answer in answers:
        assert answer.provenance.count(TokenProvenance.CACHED_DRAFT) > 0
    trio.assert_all_blocks_free()


def test_a_speculator_that_lacks_the_mode_is_not_asked_and_the_answer_comes_plainly(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, speculator_modes=(COUPLED,))
    drawn, coupled, greedy = (trio.submit(request(*kind))[1] for kind in ((REJECTION,), (COUPLED,), (REJECTION, 0.0)))
    trio.run(drawn, coupled, greedy)
    assert set(drawn.provenance) == {TokenProvenance.PLAIN}
    assert "acceptance mode" in drawn.finished.speculation.reason
    for answer in (coupled, greedy):
        assert answer.finished.speculation.speculating


def without_laws(entries: speculator_pb2.SpeculationEntries) -> None:
    for field in ("num_pairs", "pair_token_ids", "pair_probs"):
        entries.ClearField(field)


def cut_short(entries: speculator_pb2.SpeculationEntries) -> None:
    entries.pair_probs = entries.pair_probs[:-1]


def one_law_for_two_tokens(entries: speculator_pb2.SpeculationEntries) -> None:
    first = entries.num_pairs[0]
    del entries.num_pairs[1:]
    entries.pair_token_ids, entries.pair_probs = entries.pair_token_ids[: 4 * first], entries.pair_probs[: 2 * first]


def doubled(entries: speculator_pb2.SpeculationEntries) -> None:
    probs = np.frombuffer(entries.pair_probs, dtype="<f2").copy()
    entries.pair_probs = (probs / 2).astype("<f2").tobytes()


def of_other_tokens(entries: speculator_pb2.SpeculationEntries) -> None:
    ids = np.frombuffer(entries.pair_token_ids, dtype="<u4") + 1000
    entries.pair_token_ids = ids.astype("<u4").tobytes()


def tampered(trio: InMemoryTrio, sequence_id: int, tamper: Tamper) -> Callable[[SpeculatorFrame], None]:
    """What the link would deliver, had the speculator sent such entries for that sequence."""
    deliver = trio._to_verifier

    def to_verifier(frame: SpeculatorFrame) -> None:
        message = speculator_frame_to_proto(frame)
        for entries in message.entries:
            if entries.sequence_id == sequence_id and entries.num_pairs:
                tamper(entries)
        received, _ = speculator_frame_from_proto(message)
        deliver(received)

    return to_verifier


@pytest.mark.parametrize("pace", [Pace.FAST, Pace.LATE])
@pytest.mark.parametrize("tamper", [without_laws, cut_short, one_law_for_two_tokens, doubled, of_other_tokens])
def test_broken_laws_quarantine_their_sequence_and_no_other(tiny: TinyModels, tamper: Tamper, pace: Pace) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace)
    trio.stream.send = tampered(trio, 1, tamper)
    broken, sound = (trio.submit(request(REJECTION))[1] for _ in range(2))
    while not broken.is_over:
        trio.step()
    assert set(broken.provenance) == {TokenProvenance.PLAIN}  # as if there were no draft
    assert not broken.finished.speculation.speculating
    assert "malformed" in broken.finished.speculation.reason
    trio.run(sound)
    assert sound.finished.speculation.speculating
    assert sound.finished.speculation.num_accepted_tokens > 0
    assert trio.stalls == 0
    trio.assert_all_blocks_free()
