"""The work of one step on all its sequences, so done that the fault of one stays its own.

What fails for a batch is done again in parts until the culprit stands alone: it ends, and the others have what they
would have had. A forward writes KV beyond what its sequences have committed, so that it can be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saguaro.engine.model_runner import Logits
from saguaro.engine.runner import Runner
from saguaro.engine.watched_runner import forward_works
from saguaro.errors import SaguaroError, SequenceFault, Unavailable
from saguaro.types import VerificationOutcome
from verifier_service.scheduler import Row
from verifier_service.sequence import Sequence as Generation
from verifier_service.target_rows import TargetRows

log = logging.getLogger(__name__)

# Of forwards in one step. Finding one culprit among 4,096 sequences takes 14; who was not tried is in the next step.
_MOST_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """What a row met, as an error of its own."""

    row: Row
    error: Exception


@dataclass(frozen=True, slots=True)
class Computed:
    """The rows whose forward succeeded, and their logits."""

    rows: list[Row]
    logits: Logits
    faults: list[Fault] = field(default_factory=list)
    is_whole: bool = True  # in one forward


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows whose verification ended, in the order of their forward, and how."""

    rows: list[Row]
    outcomes: list[VerificationOutcome]
    logits: list[Tensor]  # [num_choosing, vocab] each: the rows that chose
    faults: list[Fault] = field(default_factory=list)


def compute(runner: Runner, rows: Sequence[Row]) -> Computed:
    """The forward of these rows. Raises Unavailable where none succeeds, not even one that no sequence has part in."""
    try:
        return Computed(list(rows), runner.forward([row.chunk for row in rows]))
    except Exception:
        log.exception("a forward of %d sequences failed; it is tried again in parts", len(rows))
    return _computed_in_parts(runner, rows)


def _computed_in_parts(runner: Runner, rows: Sequence[Row]) -> Computed:
    """Newcomers apart from those that have run well so far; of a part that fails, its halves."""
    done: list[Row] = []
    logits: list[Logits] = []
    faults: list[Fault] = []
    newcomers, others = [row for row in rows if row.is_new], [row for row in rows if not row.is_new]
    parts = [newcomers, others] if newcomers and others else _halves(list(rows))  # the last is the first to be tried
    num_failures = 1
    while parts and num_failures < _MOST_FAILURES:
        part = parts.pop()
        try:
            own = runner.forward([row.chunk for row in part])
        except Exception as error:  # it is charged to a sequence, or to the model
            num_failures += 1
            if len(part) > 1:
                parts += _halves(part)
            elif done or forward_works(runner, part[0].chunk.write_slots[-1:]):
                faults.append(Fault(part[0], error))
            else:
                raise Unavailable("the model's forwards fail on this machine") from error
        else:
            done += part
            logits.append(Logits(own.rows.clone(), own.offsets))  # the next forward may use them again
    return Computed(done, _joined(logits), faults, is_whole=False)


def _halves(rows: list[Row]) -> list[list[Row]]:
    middle = len(rows) // 2
    return [part for part in (rows[middle:], rows[:middle]) if part]


def _joined(parts: list[Logits]) -> Logits:
    if not parts:
        return Logits(torch.empty(0, 0), ())
    offsets: list[slice] = []
    start = 0
    for part in parts:
        offsets += [slice(start + own.start, start + own.stop) for own in part.offsets]
        start += len(part.rows)
    return Logits(torch.cat([part.rows for part in parts]), tuple(offsets))


def judge(target_rows: TargetRows, computed: Computed) -> Judged:
    """How the verification of each computed row ended that chooses a token."""
    choosing = [(row, computed.logits.of(index)) for index, row in enumerate(computed.rows) if row.num_choosing]
    rows = [row for row, _ in choosing]
    try:
        outcomes = target_rows.outcomes(computed.rows, computed.logits)
        return Judged(rows, outcomes, [own[-row.num_choosing :] for row, own in choosing])
    except Exception as error:
        if not isinstance(error, SaguaroError):
            log.exception("the outcomes of %d sequences failed; each is tried alone", len(rows))
    judged = Judged([], [], [])
    for row, own in choosing:
        try:
            (outcome,) = target_rows.outcomes([row], Logits(own, (slice(0, len(own)),)))
        except Exception as error:  # noqa: BLE001  # it is charged to its sequence
            judged.faults.append(Fault(row, error))
        else:
            judged.rows.append(row)
            judged.outcomes.append(outcome)
            judged.logits.append(own[-row.num_choosing :])
    return judged


def told(sequence: Generation, error: Exception) -> SaguaroError:
    """What the sequence's caller is told; of our own faults the log keeps the cause."""
    request_id = sequence.request.request_id
    if isinstance(error, SaguaroError):
        log.warning("request %s: %s", request_id, error)
        return error
    log.error("request %s failed", request_id, exc_info=error)
    return SequenceFault(f"request {request_id} failed inside the verifier; its log has the cause")
