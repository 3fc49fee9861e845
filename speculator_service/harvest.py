"""What a forward brought, handed to its sessions: tokens to trees, candidates to trunks.

Rows of all sessions are worked on together. A fault in one session's rules, grammar or law ends that session only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from saguaro.engine.model_runner import Logits
from speculator_service.batch import Due, Work
from speculator_service.branches import Branches, Drafted
from speculator_service.draft_rows import Ask, DraftRows, Growing
from speculator_service.isolation import in_parts
from speculator_service.rows import Ranked, row_positions
from speculator_service.session import FanOut, Session
from speculator_service.stream import Stream

_MOST_KEPT_BYTES = 256 << 20  # logits of all trees that may be kept for who inherits them

FanOutFor = Callable[[Stream, Session, int], FanOut]  # of so many sessions in one forward


class Harvest:
    """Works on the engine thread. `sessions` are all that are open, `fan_out_for` hands out what they may guess."""

    def __init__(
        self,
        draft_rows: DraftRows,
        *,
        max_lookahead: int,
        sessions: Callable[[], Iterable[Session]],
        fan_out_for: FanOutFor,
    ) -> None:
        self._draft_rows = draft_rows
        self._max_lookahead = max_lookahead
        self._sessions = sessions
        self._fan_out_for = fan_out_for

    def take_trees(self, works: Sequence[Work], logits: Logits, places: Sequence[int]) -> None:
        """A step of the trees of `works[place]`."""
        joined = _rows_of(logits, places)
        is_kept = joined.nbytes * self._max_lookahead <= _MOST_KEPT_BYTES
        if is_kept:  # what all hold by now is only looked up where it matters
            is_kept = joined.nbytes <= _MOST_KEPT_BYTES - sum(item.forest.kept_bytes for item in self._sessions())
        grown: list[tuple[int, Drafted]] = []

        def grow(some: Sequence[int]) -> None:
            rows = joined if len(some) == len(places) else _rows_of(logits, some)
            trees = [_growing(works[place]) for place in some]
            grown.extend(zip(some, self._draft_rows.grow(trees, rows), strict=True))

        in_parts(places, grow, lambda place, fault: blame(works[place], fault))
        for place, following in grown:
            work = works[place]
            with work.stream.charged(work.session.sequence_id, work.session.epoch):
                _branches_of(work).take(following, logits.of(place).clone() if is_kept else None)

    def take_trunks(self, works: Sequence[Work], logits: Logits, places: Sequence[int]) -> None:
        """The trunks of `works[place]` are so much further."""
        asks = [Ask(works[place].stream, works[place].session, row_positions(works[place].chunk)) for place in places]
        rows = [logits.of(place) for place in places]
        for index, ranked in self._ranked(asks, rows, _rows_of(logits, places)):
            work = works[places[index]]
            with work.stream.charged(work.session.sequence_id, work.session.epoch):
                fan_out = self._fan_out_for(work.stream, work.session, len(places))
                work.session.take_trunk(work.chunk, ranked, fan_out)

    def rank_inherited(self, due: Sequence[Due], now_ns: int) -> None:
        """Outcomes that were foretold: the logits of their branches say already what may come next."""
        heirs = [item for item in due if item[1].can_guess]
        if not heirs:
            return
        asks = [Ask(stream, session, _inherited_positions(session)) for stream, session in heirs]
        for index, ranked in self._ranked(asks, [session.inherited for _, session in heirs]):
            stream, session = heirs[index]
            session.clock.take_up(now_ns)
            with stream.charged(session.sequence_id, session.epoch):
                session.take_inherited(ranked, self._fan_out_for(stream, session, len(due)))

    def _ranked(
        self, asks: Sequence[Ask], rows: Sequence[Tensor | None], joined: Tensor | None = None
    ) -> list[tuple[int, Ranked]]:
        """Candidates by index of who asks, but for those that a fault ended. `joined`: all rows, where they lie so."""
        found: list[tuple[int, Ranked]] = []

        def rank(some: Sequence[int]) -> None:
            own = [part for part in (rows[index] for index in some) if part is not None]
            if joined is not None and len(some) == len(asks):
                own = [joined]
            found.extend(zip(some, self._draft_rows.rank([asks[index] for index in some], own), strict=True))

        def charge(index: int, fault: Exception) -> None:
            ask = asks[index]
            ask.stream.blame(ask.session.sequence_id, ask.session.epoch, fault)

        in_parts(range(len(asks)), rank, charge)
        return found


def blame(work: Work, fault: Exception) -> None:
    """The work of this session alone cannot be done."""
    work.stream.blame(work.session.sequence_id, work.session.epoch, fault)


def _growing(work: Work) -> Growing:
    return Growing(work.stream, work.session, work.chunk, _branches_of(work))


def _branches_of(work: Work) -> Branches:
    assert work.branches is not None
    return work.branches


def _inherited_positions(session: Session) -> list[int]:
    """Absolute position that each inherited row predicts."""
    count = 0 if session.inherited is None else len(session.inherited)
    return list(range(len(session.prefix), len(session.prefix) + count))


def _rows_of(logits: Logits, places: Sequence[int]) -> Tensor:
    """The logits rows of these chunks, in order; no copy where they are all."""
    if len(places) == len(logits.offsets):
        return logits.rows
    return torch.cat([logits.of(place) for place in places])
