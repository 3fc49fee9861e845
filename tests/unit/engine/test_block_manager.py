import pytest

from saguaro.engine.block_manager import BlockManager, BlockTable, OutOfBlocks


def committed(manager: BlockManager, token_ids: list[int]) -> BlockTable:
    table = BlockTable(manager)
    table.match_prefix(token_ids)
    table.reserve(len(token_ids))
    table.commit(token_ids, len(token_ids))
    return table


def test_slots_are_block_times_size_plus_offset_in_sequence_order():
    table = BlockTable(BlockManager(num_blocks=8, block_size=4))
    table.reserve(10)
    expected = [table.blocks[position // 4] * 4 + position % 4 for position in range(12)]
    assert table.slots(0, 12).tolist() == expected
    assert table.slots(3, 9).tolist() == expected[3:9]
    assert table.capacity == 12


def test_slots_without_a_block_are_refused():
    table = BlockTable(BlockManager(num_blocks=8, block_size=4))
    table.reserve(4)
    with pytest.raises(ValueError, match=r"slots \[0, 5\) of a table with 4"):
        table.slots(0, 5)


def test_a_prompt_larger_than_the_pool_raises_and_takes_nothing():
    manager = BlockManager(num_blocks=4, block_size=4)
    table = BlockTable(manager)
    table.reserve(4)
    with pytest.raises(OutOfBlocks, match="4 blocks wanted, 3 of 4 free"):
        table.reserve(17)
    assert manager.num_free == 3
    assert table.capacity == 4


def test_a_later_prompt_adopts_the_full_blocks_of_the_same_prefix():
    manager = BlockManager(num_blocks=8, block_size=4)
    first = committed(manager, [*range(10)])
    second = BlockTable(manager)
    assert second.match_prefix([*range(10)]) == 8
    assert second.blocks == first.blocks[:2]
    assert [manager.reference_count(block) for block in second.blocks] == [2, 2]
    assert second.num_committed == second.num_sealed == 8


def test_the_last_prompt_token_is_always_left_to_compute():
    manager = BlockManager(num_blocks=8, block_size=4)
    committed(manager, [*range(8)])
    assert BlockTable(manager).match_prefix([*range(8)]) == 4
    assert BlockTable(manager).match_prefix([*range(9)]) == 8
    assert BlockTable(manager).match_prefix([*range(4)]) == 0
    assert BlockTable(manager).match_prefix([]) == 0


def test_the_same_block_after_another_prefix_is_not_shared():
    manager = BlockManager(num_blocks=8, block_size=2)
    committed(manager, [1, 2, 7, 8])
    assert BlockTable(manager).match_prefix([7, 8, 9]) == 0
    assert BlockTable(manager).match_prefix([3, 4, 7, 8, 9]) == 0


def test_freed_blocks_can_still_be_hit_until_their_memory_is_wanted():
    manager = BlockManager(num_blocks=4, block_size=2)
    committed(manager, [1, 2, 3, 4]).free()
    assert manager.num_free == 4
    with BlockTable(manager) as table:
        assert table.match_prefix([1, 2, 3, 4, 5]) == 4
        assert manager.num_free == 2
    with BlockTable(manager) as table:
        table.reserve(8)
    assert BlockTable(manager).match_prefix([1, 2, 3, 4, 5]) == 0


def test_the_least_recently_freed_prefix_is_forgotten_first_and_its_end_before_its_beginning():
    manager = BlockManager(num_blocks=4, block_size=2)
    old, new = committed(manager, [1, 2, 3, 4]), committed(manager, [5, 6, 7, 8])
    old.free()
    new.free()
    other = BlockTable(manager)
    other.reserve(2)
    assert BlockTable(manager).match_prefix([5, 6, 7, 8, 9]) == 4
    assert BlockTable(manager).match_prefix([1, 2, 3, 4, 9]) == 2


def test_an_accepted_run_across_a_block_boundary_registers_the_block_that_holds_its_tokens():
    manager = BlockManager(num_blocks=8, block_size=4)
    table, token_ids = BlockTable(manager), [*range(100, 103)]
    table.reserve(3)
    table.commit(token_ids, 3)
    table.reserve(8)
    token_ids += [*range(103, 107)]
    table.commit(token_ids, 7)
    table.reserve(12)
    token_ids += [*range(107, 110)]
    table.commit(token_ids, 10)
    reader = BlockTable(manager)
    assert reader.match_prefix([*token_ids, 0, 0]) == 8
    assert reader.blocks == table.blocks[:2]


def test_two_sequences_that_computed_the_same_prompt_at_once_keep_their_own_blocks_and_a_third_shares_one():
    manager = BlockManager(num_blocks=8, block_size=2)
    first, second = BlockTable(manager), BlockTable(manager)
    for table in (first, second):
        table.reserve(4)
    for table in (first, second):
        table.commit([1, 2, 3, 4], 4)
    third = BlockTable(manager)
    assert third.match_prefix([1, 2, 3, 4, 5]) == 4
    assert third.blocks == first.blocks
    assert not set(first.blocks) & set(second.blocks)
    for table in (first, second, third):
        table.free()
    assert manager.num_free == 8


def test_truncate_frees_the_blocks_wholly_beyond_and_never_committed_ones():
    manager = BlockManager(num_blocks=8, block_size=4)
    table = BlockTable(manager)
    table.reserve(15)
    table.commit([*range(15)], 5)
    table.truncate(9)
    assert (table.capacity, manager.num_free) == (12, 5)
    table.truncate(5)
    assert (table.capacity, manager.num_free) == (8, 6)
    with pytest.raises(ValueError, match="truncate to 4 tokens: 5 are committed"):
        table.truncate(4)


@pytest.mark.parametrize(("num_tokens", "num_given"), [(4, 8), (9, 8), (9, 9)])
def test_a_commit_backwards_or_beyond_the_tokens_or_slots_is_refused(num_tokens: int, num_given: int):
    table = BlockTable(BlockManager(num_blocks=8, block_size=4))
    table.reserve(8)
    table.commit([*range(8)], 5)
    with pytest.raises(ValueError, match=f"commit of {num_tokens} tokens"):
        table.commit([*range(num_given)], num_tokens)


def test_free_may_be_repeated_and_the_context_manager_frees():
    manager = BlockManager(num_blocks=4, block_size=4)
    with BlockTable(manager) as table:
        table.reserve(16)
        assert manager.num_free == 0
        table.free()
        assert manager.num_free == 4
    assert manager.num_free == 4
    assert table.capacity == 0
