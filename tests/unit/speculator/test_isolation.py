"""What one sequence brings, by its own word or by a fault of ours, ends that sequence; the others go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import Unavailable
from saguaro.types import NotSpeculatingReason, OpenSequence, SamplingParams, VerificationOutcome
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier, opening

MALFORMED, OVERLOADED = NotSpeculatingReason.MALFORMED, NotSpeculatingReason.OVERLOADED
BAD, BYSTANDER, POISON = 1, 2, 77
GOOD = opening(BAD, range(40))
HOSTILE: dict[str, OpenSequence] = {
    "a bias that is NaN": replace(GOOD, sampling=SamplingParams(logit_bias=((7, math.nan),))),
    "a bias that is infinite": replace(GOOD, sampling=SamplingParams(logit_bias=((7, math.inf),))),
    "two biases of one token": replace(GOOD, sampling=SamplingParams(logit_bias=((7, 1.0), (7, 2.0)))),
    "a bias of no token": replace(GOOD, sampling=SamplingParams(logit_bias=((10**6, 1.0),))),
    "a temperature that is NaN": replace(GOOD, sampling=SamplingParams(temperature=math.nan)),
    "an infinite temperature": replace(GOOD, sampling=SamplingParams(temperature=math.inf)),
    "top_p above 1": replace(GOOD, sampling=SamplingParams(temperature=1.0, top_p=2.0)),
    "min_p that is NaN": replace(GOOD, sampling=SamplingParams(temperature=1.0, min_p=math.nan)),
    "no repetition penalty at all": replace(GOOD, sampling=SamplingParams(repetition_penalty=0.0)),
    "an infinite penalty": replace(GOOD, sampling=SamplingParams(presence_penalty=math.inf)),
    "C above 1": replace(GOOD, sampling=SamplingParams(cached_scale=1.5)),
    "thousands of stop tokens": replace(GOOD, sampling=SamplingParams(stop_token_ids=tuple([5] * 5000))),
    "more prompt than tokens": replace(GOOD, num_prompt_tokens=41),
    "no tokens": replace(GOOD, token_ids=(), num_prompt_tokens=0),
    "a token of no vocabulary": replace(GOOD, token_ids=(*GOOD.token_ids[:-1], 10**6)),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("is_sampled", [False, True])
def test_an_open_out_of_bounds_is_quarantined_and_nobody_else(
    draft: Path, hostile: OpenSequence, is_sampled: bool
) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.say(opens=(hostile, opening(BYSTANDER, range(60, 90), temperature=0.8 if is_sampled else 0.0)))
    speculator.run()
    assert verifier.refusals == [(BAD, MALFORMED)]
    assert verifier.entries_of(BYSTANDER)[-1].complete


@pytest.mark.parametrize(
    ("outcome", "following"),
    [
        (VerificationOutcome(0, 10**6), ()),
        (VerificationOutcome(0, 5), (1, 2, 10**6)),
        (VerificationOutcome(0, 5), tuple([5] * 65)),
        (VerificationOutcome(1, 5), ()),
    ],
)
def test_a_commit_out_of_bounds_is_quarantined_and_nobody_else(
    draft: Path, outcome: VerificationOutcome, following: tuple[int, ...]
) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.say(opens=(GOOD, opening(BYSTANDER, range(60, 90))))
    speculator.run()
    verifier.commit(BAD, 0, outcome, following)
    verifier.commit(BYSTANDER, 0, VerificationOutcome(0, 5))
    speculator.run()
    assert verifier.refusals == [(BAD, MALFORMED)]
    assert verifier.entries_of(BYSTANDER)[-1].round == 1


def test_a_frame_may_wish_for_more_than_there_is(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator, lookahead=2**32 - 1, budget=2**32 - 1)
    sampling = SamplingParams(temperature=0.8, stop_token_ids=(3,) * 128)
    verifier.say(opens=(replace(GOOD, sampling=sampling),), soft_deadline_ns=2**64 - 1, cached_scale=math.nan)
    speculator.run()
    pieces = [piece for item in verifier.entries_of(BAD) for piece in item.pieces]
    assert max(piece.offset + len(piece.token_ids) for piece in pieces) == 16
    assert len({piece.outcome for piece in pieces}) <= 64
    assert not verifier.refusals


def test_the_same_open_twice_and_an_older_epoch_change_nothing(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.open(1, range(40), epoch=5)
    verifier.open(1, range(60, 90), epoch=5)
    verifier.open(1, range(60, 90), epoch=4)
    speculator.run()
    assert verifier.stream.sessions[1].prefix == list(range(40))
    assert speculator.scheduler.num_stale == 2


Forward = Callable[[Sequence[Chunk]], Logits]


def poisoned(chunks: Sequence[Chunk], forward: Forward) -> Logits:
    """Fails where the poison is among the tokens."""
    if any(POISON in chunk.token_ids for chunk in chunks):
        raise RuntimeError("a test's fault")
    return forward(chunks)


def test_a_forward_that_one_sequence_fails_goes_on_without_it(draft: Path) -> None:
    speculator = LoneSpeculator(draft, forward=poisoned)
    verifier = Verifier(speculator, budget=1)
    for epoch in range(1, 5):
        others = [opening(10 * epoch + number, range(number, number + 30), epoch) for number in range(8)]
        verifier.say(opens=(*others[:4], opening(BAD, [POISON] * 30, epoch), *others[4:]))
        speculator.run()
        assert all(verifier.entries_of(opened.sequence_id)[-1].complete for opened in others)
    # It may come again after a fault that may have passed, but not for ever.
    assert verifier.refusals == [(BAD, OVERLOADED)] * 2 + [(BAD, MALFORMED)] * 2


def test_a_fault_that_passes_costs_nobody_anything(draft: Path) -> None:
    faults = [RuntimeError("a test's fault")]

    def forward(chunks: Sequence[Chunk], real: Forward) -> Logits:
        if faults and len(chunks) > 1:
            raise faults.pop()
        return real(chunks)

    speculator = LoneSpeculator(draft, forward=forward)
    verifier = Verifier(speculator)
    verifier.say(opens=tuple(opening(number, range(number, number + 15)) for number in range(8)))
    speculator.run()
    assert not faults
    assert not verifier.refusals
    assert all(verifier.entries_of(number)[-1].complete for number in range(8))


def test_a_model_that_does_not_work_quarantines_nobody(draft: Path) -> None:
    is_broken = True

    def forward(chunks: Sequence[Chunk], real: Forward) -> Logits:
        if is_broken:
            raise RuntimeError("a test's fault")
        return real(chunks)

    speculator = LoneSpeculator(draft, forward=forward)
    verifier = Verifier(speculator)
    verifier.say(opens=(GOOD, opening(BYSTANDER, range(60, 90))))
    with pytest.raises(Unavailable, match="forwards fail"):
        speculator.scheduler.step()
    verifier.open(3, range(20, 50))  # while it does not work
    speculator.scheduler.refuse_all()
    assert sorted(verifier.refusals) == [(BAD, OVERLOADED), (BYSTANDER, OVERLOADED), (3, OVERLOADED)]
    assert speculator.num_used_blocks == 0

    is_broken = False
    verifier.open(BAD, range(40), epoch=2)
    speculator.run()
    assert verifier.entries_of(BAD)[-1].complete


def _broken(*_: Any) -> Any:
    raise RuntimeError("a test's fault")


@pytest.mark.parametrize("place", ["rules", "grammar", "guesses", "commit"])
@pytest.mark.parametrize("acceptance", [1, 2])
def test_a_fault_inside_one_sequences_rules_grammar_or_guesses_ends_it_alone(
    draft: Path, place: str, acceptance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    for number in range(6):
        verifier.open(number, range(number, number + 15), temperature=0.8, presence_penalty=0.5, acceptance=acceptance)
    speculator.run()
    session = verifier.stream.sessions[BAD]
    owner, name = {
        "rules": (session.rules, "apply_"),
        "grammar": (session.constraint, "masks"),
        "guesses": (session, "_guess"),
        "commit": (session, "_take_next"),
    }[place]
    monkeypatch.setattr(owner, name, _broken)
    for number in range(6):
        verifier.commit(number, 0, VerificationOutcome(0, 200))
    speculator.run()
    assert verifier.refusals == [(BAD, OVERLOADED)]
    assert all(verifier.entries_of(number)[-1].round == 1 for number in range(6) if number != BAD)
    for number in range(6):
        verifier.close(number)
    speculator.run()
    assert speculator.num_used_blocks == 0
