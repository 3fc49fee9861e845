"""What a verification decides: how many draft tokens stand, and the token after them.

Coupled mode: the target's token at a position is a function of (target, parameters, seed), see `saguaro.core.sampling`.
A draft token stands iff it is that token and all before it stand. So what is emitted is always the target's own
tokens, whatever was drafted; the draft decides only how many of them come out of one round.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from saguaro.core.row_sampling import LEAST_TEMPERATURE
from saguaro.types import AcceptanceMode, SamplingParams, TokenIds, VerificationOutcome


def draws_drafts(sampling: SamplingParams) -> bool:
    """Whether draft tokens are drawn from laws and accepted by them: see `saguaro.core.rejection`.

    At temperature 0 both modes accept a draft token iff it is the argmax, so no laws are needed there.
    """
    return sampling.acceptance is AcceptanceMode.REJECTION and sampling.temperature >= LEAST_TEMPERATURE


def accept(
    target_tokens: Tensor | Sequence[int],  # [rows], sequence after sequence, len(draft) + 1 rows each
    drafts: Sequence[TokenIds],  # one a sequence, possibly empty
) -> list[VerificationOutcome]:  # one a sequence
    """Outcome of each sequence's verification.

    Row i of a sequence holds the target's token after the committed tokens and the first i draft tokens. Raises
    ValueError when the number of rows is not that of the drafts.
    """
    tokens: list[int] = target_tokens.tolist() if isinstance(target_tokens, Tensor) else list(target_tokens)
    num_rows = sum(len(draft) + 1 for draft in drafts)
    if len(tokens) != num_rows:
        raise ValueError(f"{len(tokens)} target tokens for drafts that have {num_rows} rows")
    outcomes = []
    start = 0
    for draft in drafts:
        num_accepted = 0
        while num_accepted < len(draft) and draft[num_accepted] == tokens[start + num_accepted]:
            num_accepted += 1
        outcomes.append(VerificationOutcome(num_accepted, bonus_token=tokens[start + num_accepted]))
        start += len(draft) + 1
    return outcomes
