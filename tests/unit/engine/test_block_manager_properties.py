"""Random lives of many sequences on one small pool; what must hold after every step."""

from collections import Counter
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from saguaro.engine.block_manager import BlockManager, BlockTable, OutOfBlocks

NUM_BLOCKS, BLOCK_SIZE = 12, 3
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14)  # two letters: shared prefixes are common
index = st.integers(0, 1000)


class SequenceLives(RuleBasedStateMachine):
    """`written` is the pool: which (token, prefix before it) each slot was last written with."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(NUM_BLOCKS, BLOCK_SIZE)
        self.sequences: list[tuple[BlockTable, list[int]]] = []
        self.written: dict[int, tuple[int, ...]] = {}

    @rule(prompt=tokens)
    def open(self, prompt: list[int]) -> None:
        table = BlockTable(self.manager)
        num_shared = table.match_prefix(prompt)
        assert num_shared < len(prompt)
        for position in range(num_shared):
            assert self.written[int(table.slots(position, position + 1)[0])] == tuple(prompt[: position + 1])
        self.sequences.append((table, prompt[:num_shared]))
        self.extend_and_commit(len(self.sequences) - 1, prompt[num_shared:], 1.0)

    @precondition(lambda self: self.sequences)
    @rule(which=index, speculated=tokens, share=st.floats(0, 1))
    def extend_and_commit(self, which: int, speculated: list[int], share: float) -> None:
        table, token_ids = self.sequences[which % len(self.sequences)]
        start, free_before, capacity_before = len(token_ids), self.manager.num_free, table.capacity
        candidate = token_ids + speculated
        try:
            table.reserve(len(candidate))
        except OutOfBlocks:
            assert (self.manager.num_free, table.capacity) == (free_before, capacity_before)
            return
        self._write(table, candidate, start)
        token_ids += speculated[: int(share * len(speculated))]
        table.commit(candidate, len(token_ids))
        table.truncate(len(token_ids))

    def _write(self, table: BlockTable, token_ids: list[int], start: int) -> None:
        holders = Counter(slot for other, _ in self.sequences for slot in other.slots(0, other.capacity).tolist())
        for position, slot in zip(
            range(start, len(token_ids)), table.slots(start, len(token_ids)).tolist(), strict=True
        ):
            assert holders[slot] == 1, "a shared slot was written"
            self.written[slot] = tuple(token_ids[: position + 1])

    @precondition(lambda self: self.sequences)
    @rule(which=index)
    def close(self, which: int) -> None:
        table, _ = self.sequences.pop(which % len(self.sequences))
        table.free()

    @invariant()
    def every_slot_holds_what_its_sequence_wrote(self) -> None:
        for table, token_ids in self.sequences:
            for position, slot in enumerate(table.slots(0, len(token_ids)).tolist()):
                assert self.written[slot] == tuple(token_ids[: position + 1])

    @invariant()
    def each_block_counts_its_holders_and_free_plus_used_is_all(self) -> None:
        holders = Counter(block for table, _ in self.sequences for block in table.blocks)
        assert all(self.manager.reference_count(block) == holders[block] for block in range(NUM_BLOCKS))
        assert self.manager.num_free + len(holders) == NUM_BLOCKS

    def teardown(self) -> None:
        for table, _ in self.sequences:
            table.free()
        assert self.manager.num_free == NUM_BLOCKS
        whole = BlockTable(self.manager)
        whole.reserve(NUM_BLOCKS * BLOCK_SIZE)  # nothing leaked: everything can be had at once
        assert sorted(whole.blocks) == list(range(NUM_BLOCKS))


class TestSequenceLives(SequenceLives.TestCase):
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)


def _all_splits(length: int) -> Iterator[tuple[int, int]]:
    return ((first, second) for first in range(1, length) for second in range(first, length))


def test_a_prefix_committed_in_any_three_pieces_is_found_by_the_next_prompt():
    prompt = [*range(11)]
    for first, second in _all_splits(len(prompt)):
        manager = BlockManager(NUM_BLOCKS, BLOCK_SIZE)
        table = BlockTable(manager)
        for end in (first, second, len(prompt)):
            table.reserve(end)
            table.commit(prompt, end)
        reader = BlockTable(manager)
        assert reader.match_prefix([*prompt, 99]) == 9
        assert reader.blocks == table.blocks[:3]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(tokens, st.floats(0, 1)), min_size=1, max_size=8),
    st.lists(tokens, max_size=3),
)
def test_the_next_turn_finds_every_whole_block_of_a_conversation_committed_in_any_runs_with_any_guesses_refused(
    block_size: int, runs: list[tuple[list[int], float]], others: list[list[int]]
) -> None:
    manager = BlockManager(num_blocks=400, block_size=block_size)
    for other in others:  # they may share a prefix with it, and be computed at the same time
        table = BlockTable(manager)
        table.reserve(len(other))
        table.commit(other, len(other))
    conversation: list[int] = []
    with BlockTable(manager) as table:
        for speculated, share in runs:
            table.reserve(len(conversation) + len(speculated))
            conversation += speculated[: int(share * len(speculated))]
            table.commit(conversation, len(conversation))
            table.truncate(len(conversation))
    whole = len(conversation) // block_size * block_size
    assert BlockTable(manager).match_prefix([*conversation, 2]) == whole
    # The tokens of a prefix and no others lead to its blocks, wherever in it another token stands.
    for changed in range(len(conversation)):
        parted = [*conversation, 2]
        parted[changed] = 3
        assert BlockTable(manager).match_prefix(parted) == changed // block_size * block_size
