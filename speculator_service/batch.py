"""What goes into the next forward: within bounds of tokens and of memory, and so that everybody's turn comes.

Prompts and extensions of trunks share one bound of tokens. Small work comes first (tokens just in time, steps of trees,
trunks that are a round behind), whoever waited longest first; prompts get what that leaves, at least a quarter, oldest
first. What does not fit into the bound of bytes waits for the next forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saguaro.engine.block_manager import OutOfBlocks
from saguaro.engine.ragged_batch import Chunk, most_mask_cells
from saguaro.engine.runner import Runner
from saguaro.types import NotSpeculatingReason
from speculator_service.branches import Branches
from speculator_service.session import Session
from speculator_service.stream import Limits, Stream

_LOGIT_BYTES = 4
_PROMPTS_SHARE = 4  # prompts get one token in so many, whatever else is due

Due = tuple[Stream, Session]


@dataclass(frozen=True, slots=True)
class Work:
    """One chunk of a forward, of one session: a step of `branches`, or trunk where that is None."""

    stream: Stream
    session: Session
    chunk: Chunk
    branches: Branches | None


@dataclass(slots=True)
class _Room:
    """What the forward that is put together may still take. An empty one takes anything: work must go on."""

    tokens: int  # of trunks
    num_bytes: int  # of attention masks and logits
    is_empty: bool = True

    def take(self, num_bytes: int, tokens: int = 0) -> None:
        self.tokens -= tokens
        self.num_bytes -= num_bytes
        self.is_empty = False


class BatchPlanner:
    """Chooses the chunks of each forward."""

    def __init__(self, runner: Runner, limits: Limits) -> None:
        self._cell_bytes = runner.mask_cell_bytes
        self._row_bytes = runner.vocab_size * _LOGIT_BYTES
        self._num_slots = runner.block_manager.num_blocks * runner.block_manager.block_size
        self._limits = limits
        self._num_batches = self._num_urgent = 0

    def next_batch(self, due: Sequence[Due]) -> list[Work]:
        """What brings sequences further. Where a verifier waits just in time, only those rows run."""
        self._num_batches += 1
        for stream, session in due:
            if self._is_prompt(session):
                with stream.charged(session.sequence_id, session.epoch):
                    session.adopt_prefix()
        prompts = sorted((item for item in due if self._is_prompt(item[1])), key=lambda item: item[1].clock.opened_ns)
        small = sorted(
            (item for item in due if not self._is_prompt(item[1])),
            key=lambda item: (not item[1].just_in_time, item[1].served),
        )
        urgent = [item for item in small if item[1].just_in_time]
        room = _Room(self._limits.prefill_chunk_tokens, self._limits.max_forward_bytes)
        # Who asks for one token after another just in time must not keep all others waiting.
        self._num_urgent = self._num_urgent + 1 if urgent and len(urgent) < len(due) else 0
        if urgent and self._num_urgent <= self._limits.max_lookahead:
            return self._fill(room, urgent, prompts)
        self._num_urgent = 0
        kept = -(-room.tokens // _PROMPTS_SHARE) if prompts else 0
        room.tokens = max(room.tokens - kept, 1)
        works = self._fill(room, small, prompts)
        room.tokens += kept
        return works + self._fill(room, prompts, prompts)

    def most_branches(self, trunk_length: int, lookahead: int, wanted: int) -> int:
        """As many branches of `lookahead` tokens as fit into a forward and half of the KV pool, at most `wanted`."""
        most = self._limits.max_forward_bytes
        wanted = min(wanted, max(self._num_slots // (2 * max(lookahead, 1)), 1))
        while wanted > 1 and self._bytes_of(wanted, trunk_length + wanted * lookahead, wanted) > most:
            wanted //= 2
        return wanted

    def _is_prompt(self, session: Session) -> bool:
        """Whether more is missing than a round leaves to be computed."""
        return session.num_missing > self._limits.max_lookahead + 1

    def _fill(self, room: _Room, items: Iterable[Due], prompts: Sequence[Due]) -> list[Work]:
        """Their work as long as there is room. Where there are no blocks the youngest prompt gives up its own."""
        works: list[Work] = []
        for item in items:
            while _is_open(item):
                try:
                    works += self._works_of(item, room)
                    break
                except OutOfBlocks:
                    stream, loser = self._loser(item, prompts)
                    stream.refuse(loser.sequence_id, loser.epoch, NotSpeculatingReason.OVERLOADED)
                except Exception as fault:  # noqa: BLE001 - the other sequences go on
                    item[0].blame(item[1].sequence_id, item[1].epoch, fault)
        return works

    def _loser(self, item: Due, prompts: Sequence[Due]) -> Due:
        """The youngest prompt that holds blocks; none that is older than `item` where that is a prompt itself."""
        is_prompt, since_ns = self._is_prompt(item[1]), item[1].clock.opened_ns
        losers = [
            other
            for other in prompts
            if _is_open(other) and other[1].table.blocks and (not is_prompt or other[1].clock.opened_ns > since_ns)
        ]
        return losers[-1] if losers else item

    def _works_of(self, item: Due, room: _Room) -> list[Work]:
        """Raises OutOfBlocks, and then takes nothing of the room."""
        stream, session = item
        works, left = [], _Room(room.tokens, room.num_bytes, room.is_empty)
        num_tokens = self._most_tokens(session, left)
        if num_tokens:
            chunk = session.next_trunk(num_tokens)
            left.take(self._bytes_of(num_tokens, len(chunk.context_slots), chunk.num_logits), num_tokens)
            works.append(Work(stream, session, chunk, None))
        for tree in session.forest.growing:
            width = tree.tree.num_branches
            num_bytes = self._bytes_of(width, tree.tree.num_columns(tree.depth), width)
            if left.is_empty or num_bytes <= left.num_bytes:
                works.append(Work(stream, session, tree.next_chunk(session.table), tree))
                left.take(num_bytes)
        room.tokens, room.num_bytes, room.is_empty = left.tokens, left.num_bytes, left.is_empty
        if works:
            session.served = self._num_batches
        return works

    def _most_tokens(self, session: Session, room: _Room) -> int:
        """Of what is missing of the trunk, as much as there is room for."""
        wanted = min(session.num_missing, room.tokens)
        most_rows = len(session.speculation) + 1
        least = 1 if room.is_empty else 0
        while wanted > least:
            num_bytes = self._bytes_of(wanted, session.num_cached + wanted, min(most_rows, wanted))
            if num_bytes <= room.num_bytes:
                break
            wanted //= 2
        return wanted

    def _bytes_of(self, num_tokens: int, context: int, num_rows: int) -> int:
        """Memory of attention masks and logits."""
        return most_mask_cells(num_tokens, context) * self._cell_bytes + num_rows * self._row_bytes


def _is_open(item: Due) -> bool:
    stream, session = item
    return stream.sessions.get(session.sequence_id) is session
