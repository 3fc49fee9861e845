"""Bytes on the wire between verifier and speculator, estimated by building a round's messages and measuring them.

An estimate: refused draft tokens are not in an answer, so ids of the answer stand in for them (varints of the same
size), and the whole budget is taken to be drafted to the whole depth. gRPC and HTTP/2 framing is left out.
"""

from __future__ import annotations

import statistics
from itertools import pairwise

from bench.measured import TimedAnswer
from saguaro.types import (
    CommitRound,
    JustInTime,
    LookupResult,
    RoundReport,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    TokenIds,
    VerificationOutcome,
    VerifierFrame,
)
from saguaro.wire.speculator import speculator_frame_to_proto, verifier_frame_to_proto


def bytes_per_round(answers: tuple[TimedAnswer, ...], lookahead: int, budget: int) -> float | None:
    """Mean over the speculated rounds of these answers, both directions; None where none was speculated."""
    sizes = [
        _round_bytes(before, after, answer.token_ids, lookahead, budget)
        for answer in answers
        for before, after in pairwise(answer.rounds)
        if before.lookup is not LookupResult.NOT_SPECULATED
    ]
    return statistics.fmean(sizes) if sizes else None


def _round_bytes(before: RoundReport, after: RoundReport, token_ids: TokenIds, lookahead: int, budget: int) -> int:
    """What travels for the round `after`: the commit before it, its draft after a miss, and the next one's entries."""
    draft = _some(token_ids, after.num_draft_tokens)
    outcome = VerificationOutcome(before.num_accepted_tokens, token_ids[0])
    missed = before.lookup is not LookupResult.HIT
    size = _verifier_bytes(before, outcome, JustInTime(lookahead) if missed else draft, lookahead, budget)
    if missed:
        size += _speculator_bytes(before, [SpeculationPiece(outcome, 0, draft)])
    if budget:
        whole = _some(token_ids, lookahead)
        size += _speculator_bytes(after, [SpeculationPiece(outcome, 0, whole)] * budget)
    return size


def _verifier_bytes(
    report: RoundReport, outcome: VerificationOutcome, speculation: TokenIds | JustInTime, lookahead: int, budget: int
) -> int:
    frame = VerifierFrame(
        step_id=report.round,
        lookahead=lookahead,
        budget=budget,
        soft_deadline_ns=report.verify_ns,
        commits=(CommitRound(1, 1, report.round, outcome, speculation),),
    )
    return int(verifier_frame_to_proto(frame).ByteSize())


def _speculator_bytes(report: RoundReport, pieces: list[SpeculationPiece]) -> int:
    entries = SpeculationEntries(1, 1, report.round, tuple(pieces), complete=True, drafting_ns=report.drafting_ns)
    return int(speculator_frame_to_proto(SpeculatorFrame((entries,), free_kv_blocks=1000)).ByteSize())


def _some(token_ids: TokenIds, count: int) -> TokenIds:
    return tuple(token_ids[index % len(token_ids)] for index in range(count))
