"""What is verified after a miss that does not wait: guesses that are there already, where they are worth their rows."""

from __future__ import annotations

from saguaro.core.planner import Planner
from saguaro.types import TokenProvenance
from verifier_service.sequence import Sequence


def guess_without_model(
    sequence: Sequence, planner: Planner, lookahead: int, batch: int, num_neighbours: int = 0
) -> int:
    """Verify the sequence's own n-grams next, or nothing, unless a neighbour's draft promises more.

    `num_neighbours` tokens were drafted for another bonus token. Returns how many of them are better than n-grams; then
    nothing is set.
    """
    if sequence.request.disable_speculation:
        return 0
    ngrams = sequence.ngrams.propose(sequence.tokens, lookahead)
    lengths = {TokenProvenance.NGRAM_DRAFT: len(ngrams), TokenProvenance.NEIGHBOUR_DRAFT: num_neighbours}
    best = max(planner.worth(kind, length, batch) for kind, length in lengths.items())
    if best.kind is TokenProvenance.NEIGHBOUR_DRAFT:
        return best.length
    if best.length:
        sequence.verify_next(ngrams[: best.length], TokenProvenance.NGRAM_DRAFT)
    return 0
