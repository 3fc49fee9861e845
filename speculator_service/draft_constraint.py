"""Drafts keep to the grammar of their sequence: what the target may not say is not worth a guess.

The verifier alone answers for the output. Where the speculator cannot follow a grammar, or not yet, it drafts as if
there were none; that costs acceptance and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future

from saguaro.engine.grammar import ConstraintCompiler, ConstraintState, TokenMasks, masks_for_runs
from saguaro.errors import InvalidRequest, SequenceFault
from saguaro.types import OpenSequence, VerificationOutcome

log = logging.getLogger(__name__)


class DraftConstraint:
    """Where one sequence's output stands in its grammar. Not thread-safe: the scheduler's thread owns it."""

    def __init__(self, compiling: Future[ConstraintState] | None, output: Sequence[int]) -> None:
        """`compiling` None is no constraint at all."""
        self._compiling = compiling
        self._state: ConstraintState | None = None
        self._unfollowed = list(output)

    @classmethod
    def of(cls, opened: OpenSequence, compiler: ConstraintCompiler | None) -> DraftConstraint:
        """That of a sequence that is opened: its compilation begins now."""
        constraint = opened.sampling.constraint
        compiling = None if constraint is None or compiler is None else compiler.begin(constraint)
        return cls(compiling, opened.token_ids[opened.num_prompt_tokens :])

    def extend(self, tokens: Sequence[int]) -> None:
        """Tokens were committed to the output."""
        self._unfollowed += tokens

    @property
    def state(self) -> ConstraintState | None:
        """After all committed tokens; None without a constraint, before it is compiled, or if it cannot be followed."""
        try:
            if self._compiling is not None:
                if not self._compiling.done():
                    return None
                compiled, self._compiling = self._compiling, None
                self._state = compiled.result()
            if self._state is not None:
                self._state.advance(self._unfollowed)
        except (InvalidRequest, SequenceFault) as error:
            log.warning("a sequence is drafted without its constraint: %s", error)
            self._state = None
        self._unfollowed.clear()
        return self._state

    def masks(self, speculation: Sequence[int], counts: Sequence[int]) -> TokenMasks | None:
        """What may follow the first so many tokens of `speculation`, a row for each of the consecutive `counts`."""
        state = self.state
        if state is None or not counts:
            return None
        return TokenMasks.of_all_rows(state.masks_for_run(speculation[: counts[-1]])[counts[0] :])

    def branches(self, speculation: Sequence[int], outcomes: Sequence[VerificationOutcome]) -> BranchConstraints | None:
        """For branches that begin with these outcomes of the verification of `speculation`."""
        state = self.state
        return None if state is None else BranchConstraints(state, speculation, outcomes)


class BranchConstraints:
    """Where each branch of a tree stands; None for one that left the grammar, so that all is the same to it."""

    def __init__(
        self, state: ConstraintState, speculation: Sequence[int], outcomes: Sequence[VerificationOutcome]
    ) -> None:
        trunk: list[ConstraintState | None] = [state]  # after the first 0, 1, .. tokens of the speculation
        for token in speculation[: max(outcome.num_accepted for outcome in outcomes)]:
            trunk.append(_advanced(_copy(trunk[-1]), token))
        self._states = [_advanced(_copy(trunk[outcome.num_accepted]), outcome.bonus_token) for outcome in outcomes]

    def advance(self, tokens: Sequence[int]) -> None:
        """Each branch drafted one more token."""
        self._states = [_advanced(state, token) for state, token in zip(self._states, tokens, strict=True)]

    def masks(self) -> TokenMasks | None:
        """What may follow each branch: a row each."""
        return masks_for_runs([(state, ()) for state in self._states])


def _copy(state: ConstraintState | None) -> ConstraintState | None:
    return None if state is None else state.copy()


def _advanced(state: ConstraintState | None, token: int) -> ConstraintState | None:
    """The same state, one token further."""
    if state is None:
        return None
    try:
        state.advance((token,))
    except SequenceFault:
        return None
    return state
