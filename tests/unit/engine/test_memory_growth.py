"""The KV pool costs memory for the tokens that were written, not for those that it has room for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from saguaro.engine.block_manager import BlockManager, BlockTable
from saguaro.engine.paged_attention import KVPool

LAYERS, HEADS, DIM = 30, 3, 64  # the demo target's: 46 KB a token in float32
TOKEN_BYTES = LAYERS * 2 * HEADS * DIM * 4
POOL_TOKENS, BLOCK = 65_536, 16


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's own count")
def test_memory_grows_with_tokens_in_use_not_with_the_pool() -> None:
    blocks = BlockManager(POOL_TOKENS // BLOCK, BLOCK)
    at_start = resident_bytes()
    pool = KVPool(LAYERS, POOL_TOKENS, HEADS, DIM, torch.float32, "cpu")
    grown = []
    tables = [BlockTable(blocks) for _ in range(4)]
    for table in tables:
        table.reserve(256)
        slots = torch.tensor(table.slots(0, 256))
        rows = torch.ones(256, HEADS, DIM)
        for layer in range(LAYERS):
            pool.write(layer, slots, rows, rows)
        grown.append(resident_bytes() - at_start)
    whole_pool = POOL_TOKENS * TOKEN_BYTES
    print(f"pool {whole_pool >> 20} MiB; after 256, 512, 768, 1024 tokens: {[size >> 20 for size in grown]} MiB")
    for count, size in enumerate(grown, start=1):
        assert size < 2 * count * 256 * TOKEN_BYTES + (8 << 20)
    assert grown[-1] < whole_pool / 20


def test_blocks_of_sequences_that_ended_are_written_again_before_fresh_ones() -> None:
    blocks = BlockManager(64, BLOCK)
    touched = set()
    for _ in range(10):
        with BlockTable(blocks) as table:
            table.reserve(4 * BLOCK)
            touched |= set(table.blocks)
    assert len(touched) == 4
