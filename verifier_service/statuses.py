"""Statuses between two threads: the link puts in what the speculator says of sequences, the engine thread takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from saguaro.types import SequenceStatus, SpeculatorFrame

_MOST = 16_384  # four times the sequences of the largest verifier


class Statuses:
    """What came since the engine thread last looked, bounded: in a long forward a speculator can say much.

    The first word on a sequence's epoch counts: a commit that crossed a refusal is unknown there, which says nothing
    new. Beyond the bound the oldest are forgotten; the speculator says again that it does not know a sequence when that
    is next committed.
    """

    def __init__(
        self,
        receive: Callable[[SpeculatorFrame, int], None],
        post: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
        *,
        most: int = _MOST,
    ) -> None:
        """`receive(frame, now_ns)` is to run on the engine thread, where `post` runs what it is given."""
        self._receive, self._post, self._wake = receive, post, wake
        self._most = most
        self._unread: dict[int, SequenceStatus] = {}
        self._lock = threading.Lock()

    def put(self, frame: SpeculatorFrame, now_ns: int) -> None:
        """A frame came, its entries are in their cache: the engine thread is woken. From any thread."""
        with self._lock:
            is_first = not self._unread
            for status in frame.statuses:
                known = self._unread.get(status.sequence_id)
                if known is not None and known.epoch >= status.epoch:
                    continue
                self._unread[status.sequence_id] = status
                if len(self._unread) > self._most:
                    del self._unread[next(iter(self._unread))]
            is_news = is_first and bool(self._unread)
        if is_news:
            self._post(lambda: self._hand_over(now_ns))
        else:
            self._wake()  # a sequence may wait for the entries

    def _hand_over(self, now_ns: int) -> None:
        with self._lock:
            unread, self._unread = self._unread, {}
        self._receive(SpeculatorFrame(statuses=tuple(unread.values())), now_ns)
