"""What goes to one verifier and was not sent yet: bounded, and free of what the verifier is beyond.

A verifier that reads slowly finds, when it reads again, at most the last two rounds of each sequence (an answer just in
time, and the guesses after it) and one status. The event loop owns it; `put` may be called from any thread.
"""

from __future__ import annotations

import asyncio

from saguaro.errors import Unavailable
from saguaro.types import SequenceStatus, SpeculationEntries, SpeculatorFrame, VerifierFrame

_MOST_STATUSES = 65_536


class Outgoing:
    """Unsent entries and statuses, merged to one frame."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._entries: dict[int, list[SpeculationEntries]] = {}
        self._statuses: dict[int, SequenceStatus] = {}
        self._free_kv_blocks = 0
        self._is_over = False
        self._fault: Exception | None = None
        self._changed = asyncio.Event()
        self.num_superseded = 0  # entries that were dropped unsent, since their round was over

    def put(self, frame: SpeculatorFrame) -> None:
        """A frame is to be sent. From any thread; a frame for a loop that is closed has nobody left to read it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._merge, frame)

    def _merge(self, frame: SpeculatorFrame) -> None:
        for entries in frame.entries:
            unsent = self._entries.setdefault(entries.sequence_id, [])
            self._keep(unsent, [item for item in unsent if _goes_with(item, entries)])
            unsent.append(entries)
        for status in frame.statuses:
            self._statuses[status.sequence_id] = status
        self._free_kv_blocks = frame.free_kv_blocks
        if len(self._statuses) > _MOST_STATUSES:
            self.end(Unavailable(f"the verifier left {_MOST_STATUSES} statuses of sequences unread"))
        self._changed.set()

    def forget(self, frame: VerifierFrame) -> None:
        """The verifier said this: entries of rounds that it has ended are of no use to it."""
        if not self._entries:
            return
        for commit in frame.commits:
            unsent = self._entries.get(commit.sequence_id, [])
            reached = commit.epoch, commit.round
            self._keep(unsent, [item for item in unsent if (item.epoch, item.round) > reached])
        for closed in frame.closes:
            unsent = self._entries.get(closed.sequence_id, [])
            self._keep(unsent, [item for item in unsent if item.epoch > closed.epoch])

    def _keep(self, unsent: list[SpeculationEntries], kept: list[SpeculationEntries]) -> None:
        self.num_superseded += len(unsent) - len(kept)
        unsent[:] = kept

    def end(self, fault: Exception | None = None) -> None:
        """Nothing more is sent; `get` says so, or raises `fault`."""
        self._is_over, self._fault = True, self._fault or fault
        self._changed.set()

    async def get(self) -> SpeculatorFrame | None:
        """All that is unsent, once there is something; None after the end."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._fault is not None:
                raise self._fault
            if self._is_over:
                self._changed.set()
                return None
            entries = tuple(item for unsent in self._entries.values() for item in unsent)
            statuses = tuple(self._statuses.values())
            self._entries.clear()
            self._statuses.clear()
            if entries or statuses:
                return SpeculatorFrame(entries, statuses, self._free_kv_blocks)


def _goes_with(older: SpeculationEntries, newer: SpeculationEntries) -> bool:
    """Of the same epoch, and at most one round behind: the newer's guesses may be of what the older answers."""
    return older.epoch == newer.epoch and older.round >= newer.round - 1
