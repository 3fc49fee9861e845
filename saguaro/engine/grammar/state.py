"""Where a sequence stands in its grammar, and what may come next."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from llguidance import LLMatcher
from torch import Tensor

from saguaro.engine.grammar.masks import TokenMasks
from saguaro.engine.grammar.vocabulary import Vocabulary
from saguaro.errors import SequenceFault

_ALL_ALLOWED = -1  # every bit of a word


class ConstraintState:
    """The tokens that one sequence wrote since its prompt, as its grammar sees them.

    Copies are independent: a tree branch advances its own. One thread at a time may use a state.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self.matcher = matcher  # for `masks_for_runs` alone
        self.vocabulary = vocabulary

    def copy(self) -> ConstraintState:
        """A state that stands at the same place and goes its own way; 10 to 60 us."""
        return ConstraintState(self.matcher.deep_copy(), self.vocabulary)

    def advance(self, token_ids: Sequence[int]) -> None:
        """Take tokens that the sequence now holds; an end-of-sequence id ends the grammar where it may end.

        Raises SequenceFault for a token that is not allowed (the state then stands before it), and where the grammar
        has become too complex to go on with.
        """
        self._check_limits()
        num_taken = self.matcher.try_consume_tokens(list(token_ids))  # stops before an end-of-sequence id
        while num_taken < len(token_ids) and self._takes_the_end(token_ids[num_taken]):
            num_taken += 1
        self._check_limits()  # taking tokens costs, too
        if num_taken < len(token_ids):
            token = self.vocabulary.tokenizer.dbg_tokens([token_ids[num_taken]])
            raise SequenceFault(
                f"token {token_ids[num_taken]} ({token}), number {num_taken} of {len(token_ids)}, "
                "is not allowed by the constraint here"
            )

    def _check_limits(self) -> None:
        if self.matcher.is_error():
            raise SequenceFault(f"the constraint cannot be followed further: {_first_line(self.matcher.get_error())}")

    def _takes_the_end(self, token_id: int) -> bool:
        is_end = token_id in self.vocabulary.eos_token_ids and self.may_end
        return is_end and self.matcher.consume_token(token_id)

    @property
    def may_end(self) -> bool:
        """Whether the text so far is complete, so that the end-of-sequence ids are allowed."""
        return self.matcher.is_accepting()

    @property
    def is_terminated(self) -> bool:
        """Whether nothing but an end-of-sequence id is allowed."""
        return self.matcher.is_stopped()

    def masks_for_run(self, speculation: Sequence[int]) -> Tensor:  # [len(speculation) + 1, words] int32
        """What is allowed after the first 0, 1, .. K tokens of `speculation`; see `masks_for_runs`."""
        masks = masks_for_runs([(self, speculation)])
        assert masks is not None
        return masks.bits


def masks_for_runs(runs: Sequence[tuple[ConstraintState | None, Sequence[int]]]) -> TokenMasks | None:
    """The masks of a batch, whose run i has a row for its state and one for each token of its speculation after it.

    The rows of the runs follow one another. A run whose state is None is free to choose; None if all are. Rows after a
    token that the grammar refuses allow everything: no target that was masked ever accepts that token. Rows after an
    end-of-sequence id allow nothing else. The states do not change, except that one whose grammar has become too
    complex allows only the end here and raises at its next `advance`. All states are of one vocabulary.
    """
    rows: list[int] = []
    constrained: list[tuple[ConstraintState, Sequence[int], int]] = []  # with the first row among the masks
    first_row = 0
    for state, speculation in runs:
        if state is not None:
            constrained.append((state, speculation, len(rows)))
            rows.extend(range(first_row, first_row + len(speculation) + 1))
        first_row += len(speculation) + 1
    if not constrained:
        return None
    vocabulary = constrained[0][0].vocabulary
    bits = torch.full((len(rows), vocabulary.num_words), _ALL_ALLOWED, dtype=torch.int32)
    single, drafted = [], []
    for state, speculation, row in constrained:
        if speculation:
            _allow_only_the_end_after_it(bits, row, speculation, vocabulary)
            drafted.append((state.matcher, row, list(speculation)))
        else:
            single.append((state.matcher, row))
    row_bytes = vocabulary.num_words * bits.element_size()
    # Neither call takes an empty list, nor the second a run without a draft token.
    if single:
        vocabulary.executor.unsafe_compute_mask_ptr(single, bits.data_ptr(), row_bytes, len(bits))
    if drafted:
        vocabulary.executor.unsafe_compute_mask_ptr_with_draft_token(drafted, bits.data_ptr(), row_bytes, len(bits))
    return TokenMasks(torch.tensor(rows), bits)


def _allow_only_the_end_after_it(bits: Tensor, row: int, speculation: Sequence[int], vocabulary: Vocabulary) -> None:
    """The executor leaves rows after an end-of-sequence id as they are."""
    for i, token_id in enumerate(speculation):
        if token_id in vocabulary.eos_token_ids:
            bits[row + i + 1 : row + len(speculation) + 1] = vocabulary.only_the_end
            return


def _first_line(message: str) -> str:
    return message.partition("\n")[0]
