"""How many outcomes to guess in a round."""

from __future__ import annotations

import math

from saguaro.core.forward_time import ForwardTime
from saguaro.core.rank_histogram import Allocation, OutcomeStatistics

_BUDGET_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)


def best_allocation(
    statistics: OutcomeStatistics,
    forward_time: ForwardTime,
    *,
    length: int,
    budget: int,
    lookahead: int,
    batch: int,
    left_ns: int,
) -> Allocation:
    """As many outcomes of the verification of `length` tokens, up to `budget`, as promise most tokens from a hit.

    More outcomes hit more often; where the device, with `batch` such trees, is slower for them, fewer of the
    `lookahead` tokens follow each in the `left_ns` until the verification ends.
    """
    tokens = statistics.acceptance.expected_tokens_up_to(lookahead)

    def promise(some: int) -> float:
        step_ns = forward_time.expect_ns(batch * some)
        depth = int(min(left_ns / step_ns, lookahead)) if step_ns else lookahead
        return statistics.allocation(length, some).hit_rate * tokens[depth]

    best = max((math.ceil(budget * share) for share in _BUDGET_SHARES), key=promise)
    if best < budget:
        forward_time.doubt(batch * budget)
    return statistics.allocation(length, best)
