"""A commit that says again what was taken for granted changes nothing of what is under way."""

from __future__ import annotations

from pathlib import Path

from saguaro.types import AcceptanceMode, CommitRound, JustInTime, TokenIds, VerificationOutcome
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier

OUTCOME = VerificationOutcome(0, 7)


def just_in_time(speculator: LoneSpeculator, verifier: Verifier) -> TokenIds:
    """Step until the four tokens that were asked for have come."""
    num_before = len(verifier.entries_of(1))
    for _ in range(50):
        speculator.scheduler.step()
        for item in verifier.entries_of(1)[num_before:]:
            if item.round == 0 and len(item.pieces) == 1 and len(item.pieces[0].token_ids) == 4:
                return item.pieces[0].token_ids
    raise AssertionError("nothing came")


def test_a_smaller_lookahead_meanwhile_is_the_next_round_s(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator, lookahead=4)
    sampling = {"temperature": 0.8, "seed": 3, "acceptance": AcceptanceMode.REJECTION, "cached_scale": 0.5}
    verifier.open(1, range(40), **sampling)
    speculator.run()
    verifier.commit(1, 0, OUTCOME, JustInTime(4))
    tokens = just_in_time(speculator, verifier)
    speculator.scheduler.step()  # its trees for the next round grow
    verifier.say(lookahead=1, commits=(CommitRound(1, 1, 0, OUTCOME, tokens),))
    num_forwards = speculator.scheduler.num_forwards
    speculator.run()
    assert speculator.scheduler.num_forwards > num_forwards
    assert not verifier.refusals
    assert speculator.scheduler.num_faults == 0
    following = [item for item in verifier.entries_of(1) if item.round == 1]
    assert max(piece.offset + len(piece.token_ids) for item in following for piece in item.pieces) == 4
    verifier.commit(1, 1, VerificationOutcome(4, 9))
    speculator.run()
    assert not verifier.refusals
