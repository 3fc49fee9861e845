"""Statuses between two threads: the link puts in what the speculator says of sequences, the engine thread takes it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from saguaro.types import SequenceStatus, SpeculatorFrame

_MOST = 16_384  # four times the sequences of the largest verifier


class Statuses:
    """What came since the engine thread last looked, bounded: in a long forward a speculator can say much.

    The first word on a sequence's epoch counts: a commit that crossed a refusal is unknown there, which says nothing
    new. Beyond the bound the oldest are forgotten; the speculator says again that it does not know a sequence when that
    is next committed.
    """

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._unread: dict[int, SequenceStatus] = {}
        self._lock = threading.Lock()

    def put(self, statuses: Iterable[SequenceStatus]) -> bool:
        """From any thread. Whether the engine thread must be told: there are some, and it has read all before."""
        with self._lock:
            had_some = bool(self._unread)
            for status in statuses:
                known = self._unread.get(status.sequence_id)
                if known is not None and known.epoch >= status.epoch:
                    continue
                self._unread[status.sequence_id] = status
                if len(self._unread) > self._most:
                    del self._unread[next(iter(self._unread))]
            return bool(self._unread) and not had_some

    def take(self) -> SpeculatorFrame:
        """All that was not read yet, as a frame without entries."""
        with self._lock:
            unread, self._unread = self._unread, {}
        return SpeculatorFrame(statuses=tuple(unread.values()))
