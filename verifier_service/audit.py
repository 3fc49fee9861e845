"""Replays finished requests without speculation while the verifier has nothing else to do, and compares every token.

Coupled mode promises that the output is a function of target, parameters and seed. This tries it on real traffic: a
share of the finished requests is decoded again, one token a forward, with KV of its own (what the request left in the
prefix cache may be what is wrong). A difference is counted and logged with the gap of the two tokens' logits: near 1e-5
it is rounding, see docs/exactness.md; far from that it is a fault.

Only what speculation must not change can be audited so: output in rejection mode follows the same law with and without
speculation, not the same tokens.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from saguaro.engine.runner import Runner
from saguaro.types import GenerationRequest, TokenIds, VerificationOutcome
from verifier_service.scheduler import Row
from verifier_service.sequence import Sequence
from verifier_service.target_rows import TargetRows

log = logging.getLogger(__name__)

# A new request waits for at most one forward of the audit, so a forward of it is short.
_PREFILL_TOKENS = 64
# Beyond it requests go unaudited: a verifier that is never idle must not gather them without end.
_MAX_PENDING = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A finished request and what it emitted."""

    request: GenerationRequest
    emitted: TokenIds


class Auditor:
    """The audit of one verifier. The decode loop's thread owns it; counts may be read on any thread."""

    def __init__(
        self,
        runner: Runner,
        new_sequence: Callable[[GenerationRequest], Sequence | None],
        *,
        rate: float,
        seed: int = 0,
    ) -> None:
        """`rate` of the finished requests are chosen, at random; which, the `seed` says.

        `new_sequence` makes the replay of a request; None where it has to be asked again later.
        """
        self.num_audited = self.num_mismatched = 0
        self._runner = runner
        self._new_sequence = new_sequence
        self._target_rows = TargetRows(runner.device)
        self._rate = rate
        self._random = random.Random(seed)
        self._pending: deque[Case] = deque()
        self._case: Case | None = None  # in work
        self._replay: Sequence | None = None

    def offer(self, sequence: Sequence) -> None:
        """A sequence finished; it may be chosen."""
        is_chosen = self._random.random() < self._rate and not sequence.draws_drafts
        if is_chosen and sequence.num_generated and len(self._pending) < _MAX_PENDING:
            self._pending.append(Case(sequence.request, tuple(sequence.tokens[sequence.num_prompt :])))

    def step(self) -> bool:
        """One forward, if there is something to audit; returns whether there was."""
        if self._case is None or self._replay is None:
            if not self._pending:
                return False
            case = self._pending.popleft()
            plain = replace(
                case.request, disable_speculation=True, logprobs=False, prompt_logprobs=False, resumption=None
            )
            replay = self._new_sequence(plain)
            if replay is None:
                self._pending.append(case)
                return False
            self._case, self._replay = case, replay
        if not self._goes_on(self._case, self._replay):
            self.num_audited += 1
            self.abandon()
        return True

    def give_way(self) -> None:
        """There is work: every block is given back. The replay goes on later from the tokens that it has."""
        if self._replay is not None:
            self._replay.preempt()

    def abandon(self) -> None:
        """The case in work is over."""
        if self._replay is not None:
            self._replay.table.free()
        self._case = self._replay = None

    def _goes_on(self, case: Case, sequence: Sequence) -> bool:
        """One forward of the replay; False when every token was compared, or one differs."""
        chunk = sequence.next_chunk(_PREFILL_TOKENS)
        is_inner = sequence.num_cached + len(chunk.token_ids) < len(sequence.tokens)
        logits = self._runner.forward([chunk])
        if is_inner:
            sequence.took_prefill(chunk)
            return True
        position = sequence.num_generated
        rows = [Row(sequence, chunk, is_prefill=False, is_inner_prefill=False)]
        token = self._target_rows.outcomes(rows, logits)[0].bonus_token
        emitted = case.emitted[position]
        if token != emitted:
            row = logits.of(0)[-1]
            self.num_mismatched += 1
            log.warning(
                "audit: request %s differs from its replay without speculation at output token %d: %d emitted, %d "
                "replayed, logit gap %.3g",
                *(case.request.request_id, position, emitted, token, float(row[token] - row[emitted])),
            )
            return False
        sequence.commit(VerificationOutcome(0, token))
        return sequence.num_generated < len(case.emitted)
