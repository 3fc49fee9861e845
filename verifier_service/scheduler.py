"""Who runs in the next step, with which tokens, and whose blocks are given up when there are too few."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from saguaro.engine.block_manager import BlockManager, OutOfBlocks
from saguaro.engine.ragged_batch import Chunk
from verifier_service.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step."""

    sequence: Sequence
    chunk: Chunk
    is_prefill: bool  # the prompt, or what a preempted sequence computes again
    is_inner_prefill: bool  # more of it follows, so that no token comes of this forward

    @property
    def is_new(self) -> bool:
        """Whether no forward of the sequence has brought a token here yet."""
        return self.is_prefill and not self.sequence.has_run

    @property
    def num_choosing(self) -> int:
        """The last so many logits rows each choose a token."""
        return 0 if self.is_inner_prefill else len(self.sequence.speculation) + 1


class Scheduler:
    """First come, first served. When blocks run out, guesses are shortened first, then the youngest gives way.

    `on_admit` and `on_preempt` hear of every sequence that enters the step loop and of every one put back, `on_fault`
    of one that cannot be scheduled: it must be removed then.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_running: int,
        prefill_chunk_tokens: int,
        on_admit: Callable[[Sequence], None],
        on_preempt: Callable[[Sequence], None],
        on_fault: Callable[[Sequence, Exception], None],
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # oldest first
        self.num_preemptions = 0
        self.blocks = blocks
        self._max_running = max_running
        self._prefill_chunk_tokens = prefill_chunk_tokens
        self._on_admit = on_admit
        self._on_preempt = on_preempt
        self._on_fault = on_fault

    def add(self, sequence: Sequence) -> None:
        """A new sequence, last in the queue."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """The sequence ended; its blocks are free."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.table.free()

    def next_batch(self) -> list[Row]:
        """Rows of the next step: every running sequence that does not wait for a speculation."""
        self._admit()
        rows: list[Row] = []
        prefill_left = self._prefill_chunk_tokens
        for sequence in list(self.running):
            if sequence.wait_until_ns is not None or sequence not in self.running:
                continue
            if sequence.is_prefilling and prefill_left == 0:
                continue
            try:
                chunk = self._chunk(sequence, prefill_left, rows)
            except Exception as fault:  # noqa: BLE001  # it is charged to its sequence
                self._on_fault(sequence, fault)
                continue
            if chunk is None:
                break
            if sequence.is_prefilling:
                prefill_left = max(prefill_left - len(chunk.token_ids), 0)
            is_inner = sequence.num_cached + len(chunk.token_ids) < len(sequence.tokens)
            rows.append(Row(sequence, chunk, sequence.is_prefilling, is_inner))
        return rows

    def _admit(self) -> None:
        """Let sequences in while their tokens fit beside what runs."""
        while self.waiting and len(self.running) < self._max_running:
            sequence = self.waiting[0]
            needed = -(-(len(sequence.tokens) + 1) // self.blocks.block_size)
            if self.running and needed + self._pending_blocks() > self.blocks.num_free:
                return
            self.running.append(self.waiting.popleft())
            try:
                sequence.adopt_prefix()
                self._on_admit(sequence)
            except Exception as fault:  # noqa: BLE001  # it is charged to its sequence
                self._on_fault(sequence, fault)

    def _pending_blocks(self) -> int:
        """Blocks that admitted prompts will still take before their first token."""
        return sum(
            max(-(-(len(item.tokens) + 1) // self.blocks.block_size) - len(item.table.blocks), 0)
            for item in self.running
            if item.is_prefilling
        )

    def _chunk(self, sequence: Sequence, prefill_left: int, rows: list[Row]) -> Chunk | None:
        """The sequence's tokens for this step, with room made for them. None where it can have none now.

        Sequences come oldest first, so those with rows in this step are older and never give way; but their guesses do.
        """
        limit = prefill_left if sequence.is_prefilling else 1 << 30
        while True:
            try:
                return sequence.next_chunk(limit)
            except OutOfBlocks:
                if self._shorten(sequence) or self._shorten_one_of(rows):
                    continue
                youngest = self.running[-1]
                if any(row.sequence is youngest for row in rows):
                    return None  # only older rows are left; this one waits for the next step
                self._preempt(youngest)
                if youngest is sequence:
                    return None

    def _shorten(self, sequence: Sequence) -> bool:
        """Cut a speculation to the blocks that the sequence's tokens take anyway. False if it keeps to them already.

        Verifying the first tokens of a speculation is as exact as verifying all, and no news to the speculator: those
        left out count as refused.
        """
        room = -len(sequence.tokens) % self.blocks.block_size
        if len(sequence.speculation) <= room:
            return False
        sequence.verify_fewer(room)
        sequence.table.truncate(len(sequence.tokens))
        return True

    def _shorten_one_of(self, rows: list[Row]) -> bool:
        """Shorten the guess of the youngest row that has one in blocks of its own. False if none has."""
        for index in reversed(range(len(rows))):
            row = rows[index]
            if self._shorten(row.sequence):
                rows[index] = replace(row, chunk=row.sequence.next_chunk(1 << 30))
                return True
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self.num_preemptions += 1
        self._on_preempt(sequence)
        sequence.preempt()
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)
