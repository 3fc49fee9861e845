"""Work on many sequences at once, so done that the fault of one stays its own.

What fails for all is done again in parts until the culprit stands alone. That takes work that leaves no trace where it
raises: a forward writes KV beyond what is committed, and choosing tokens changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

log = logging.getLogger(__name__)

Part = TypeVar("Part")

# In one step. Finding one culprit among 4,096 takes 14; who was not tried is in the next step.
_MOST_FAILURES = 20


def in_parts(
    parts: Sequence[Part],
    work: Callable[[Sequence[Part]], None],
    blame: Callable[[Part, Exception], None],
    works_at_all: Callable[[Part], bool] = lambda _: True,
) -> None:
    """`work` on all; where it raises, on halves, and `blame` for a part that fails alone.

    Where nothing succeeded yet, `works_at_all` is asked before the first is blamed; if not, the fault is raised.
    """
    waiting, num_failures, is_proven = [list(parts)], 0, False
    while waiting and num_failures < _MOST_FAILURES:
        some = waiting.pop()
        try:
            work(some)
        except Exception as fault:
            num_failures += 1
            if num_failures == 1:
                log.exception("the work on %d parts failed; it is done again in halves", len(some))
            if len(some) > 1:
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]
            elif is_proven or works_at_all(some[0]):
                is_proven = True
                blame(some[0], fault)
            else:
                raise
        else:
            is_proven = True
