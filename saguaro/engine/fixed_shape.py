"""Numerics in which a row's bits do not depend on what is computed beside it: other rows, other sequences.

Floating-point sums depend on the order of their terms, and matrix kernels choose that order by the shape of the whole
product. So one token computed alone, in a verification of eight, or beside other sequences has logits that differ in
their last bits, and once in thousands of tokens that decides an argmax. Here the shapes that matter are fixed:

- Attention takes each query by itself, over a context padded to a multiple of `CONTEXT_MULTIPLE` slots under a mask.
  What padding adds are exact zeros. The kernels cut long sums at 256 terms where they have 512, elsewhere otherwise.
- Packed linear layers (`saguaro.engine.packed_linear`) sum alike for any number of rows but one; so there are always
  two.

That is a property of kernels, not a promise of their makers: `prove` tries it, at every start.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saguaro.engine.block_manager import BlockTable
from saguaro.engine.ragged_batch import Chunk
from saguaro.errors import ConfigurationError

if TYPE_CHECKING:
    from saguaro.engine.model_runner import ModelRunner

CONTEXT_MULTIPLE = 256
_PROOF_TOKENS = 600  # across two multiples: padded contexts of three lengths
_PROOF_ROWS = 4


def with_a_second_row(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """The same work, so that every product has two rows or more; what is added comes last and repeats a token."""
    if sum(chunk.num_logits for chunk in chunks) != 1:
        return chunks  # some want none: an inner chunk of a prompt, which has rows enough or is computed once
    wanted = next(chunk for chunk in chunks if chunk.num_logits)
    again = Chunk(
        token_ids=wanted.token_ids[-1:],
        positions=wanted.positions[-1:],
        write_slots=wanted.write_slots[-1:],
        context_slots=wanted.context_slots,
    )
    return [*chunks, again]


def prove(runner: ModelRunner) -> None:
    """Raises ConfigurationError if, on this machine, a row's logits depend on the shape of its forward after all.

    The same tokens, computed as one prompt and in pieces, alone and beside another sequence, must give the same bits.
    """
    room = runner.block_manager.num_free * runner.block_manager.block_size // 2
    num_tokens = min(_PROOF_TOKENS, runner.context_limit, room)
    token_ids = [7 * index % runner.vocab_size for index in range(num_tokens)]
    with BlockTable(runner.block_manager) as table:
        expected = _last_rows(runner, token_ids, table, [num_tokens], beside=None)
        beside = Chunk.causal(token_ids[-3:], num_tokens - 3, table, num_logits=3)
        for lengths, company in (([64, 8, 1, 2, 5], None), ([90, 1], None), ([200, 3], beside)):
            with BlockTable(runner.block_manager) as other:
                rows = _last_rows(runner, token_ids, other, _cut(num_tokens, lengths), company)
            if not torch.equal(rows, expected):
                raise ConfigurationError(
                    "numerics fixed-shape cannot be kept by this model on this machine: in forwards of "
                    f"{', '.join(map(str, lengths))} tokens it gives other logits than in one of {num_tokens}; "
                    "use numerics fast"
                )


def _cut(num_tokens: int, lengths: list[int]) -> list[int]:
    """`lengths` over and over, and at the end, where logits are compared, two single tokens and the rest together."""
    left = num_tokens - _PROOF_ROWS
    cut: list[int] = []
    turns = itertools.cycle(lengths)
    while left:
        cut.append(min(next(turns), left))
        left -= cut[-1]
    return [*cut, 1, 1, _PROOF_ROWS - 2]


def _last_rows(
    runner: ModelRunner, token_ids: list[int], table: BlockTable, lengths: list[int], beside: Chunk | None
) -> Tensor:
    """Logits [rows, vocab] of the last tokens, computed in forwards of these `lengths`."""
    table.reserve(len(token_ids))
    rows: list[Tensor] = []
    start = 0
    for length in lengths:
        piece = token_ids[start : start + length]
        chunk = Chunk.causal(piece, start, table, min(length, _PROOF_ROWS))
        rows.append(runner.forward([chunk] if beside is None else [chunk, beside]).of(0))
        start += length
    return torch.cat(rows)[-_PROOF_ROWS:]
