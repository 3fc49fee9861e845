import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saguaro.engine.ragged_batch import Chunk, RaggedBatch


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """A causal chunk or a tree, with slots anywhere in the pool."""
    q = draw(st.integers(1, 40))
    length = q + draw(st.one_of(st.integers(0, 20), st.integers(480, 540)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    context = generator.permutation(5000)[:length]
    visible = None
    if draw(st.booleans()):
        visible = generator.random((q, length)) < 0.5
        visible[np.arange(q), length - q + np.arange(q)] = True
    return Chunk(
        token_ids=generator.integers(0, 99, q).tolist(),
        positions=np.arange(length - q, length),
        write_slots=context[length - q :],
        context_slots=context,
        visible=visible,
        num_logits=draw(st.integers(0, q)),
    )


def slots_seen_by(chunk: Chunk, query: int) -> list[int]:
    """Slow and obvious."""
    length, q = len(chunk.context_slots), len(chunk.token_ids)
    if chunk.visible is None:
        return [int(slot) for slot in chunk.context_slots[: length - q + query + 1]]
    return [int(chunk.context_slots[column]) for column in range(length) if chunk.visible[query, column]]


@given(st.lists(chunks(), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_token_sees_exactly_its_slots_and_every_output_goes_back_to_its_token(work: list[Chunk]):
    batch = RaggedBatch.build(work)
    expected = [slots_seen_by(chunk, query) for chunk in work for query in range(len(chunk.token_ids))]
    outputs: list[
        tuple[int, list[int]]
    ] = []  # what stands in each row of the groups' outputs: token, slots that it saw
    for group in batch.groups:
        num_sequences, q_max = group.query_rows.shape
        mask = group.mask
        if mask is None:
            mask = torch.ones(num_sequences, 1, q_max, group.context_slots.shape[1], dtype=torch.bool)
        assert mask.any(dim=-1).all(), "a row that sees nothing would be NaN"
        for sequence in range(num_sequences):
            for query in range(q_max):
                seen = group.context_slots[sequence][mask[sequence, 0, query]].tolist()
                outputs.append((int(group.query_rows[sequence, query]), seen))
    order = range(len(outputs)) if batch.flat_order is None else batch.flat_order.tolist()
    assert [outputs[row] for row in order] == list(enumerate(expected))


@given(st.lists(chunks(), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_padding_only_gathers_slots_of_the_same_chunk(work: list[Chunk]):
    valid = [set(chunk.context_slots.tolist()) for chunk in work]
    batch = RaggedBatch.build(work)
    first_rows = np.cumsum([0, *(len(chunk.token_ids) for chunk in work)]).tolist()
    for group in batch.groups:
        for rows, slots in zip(group.query_rows.tolist(), group.context_slots.tolist(), strict=True):
            assert set(slots) == valid[first_rows.index(rows[0])]


@given(st.lists(chunks(), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_flat_inputs_and_logit_rows_are_those_of_the_chunks_in_order(work: list[Chunk]):
    batch = RaggedBatch.build(work)
    assert batch.input_ids.tolist() == [[token for chunk in work for token in chunk.token_ids]]
    assert batch.position_ids.tolist() == [[int(position) for chunk in work for position in chunk.positions]]
    assert batch.write_slots.tolist() == [int(slot) for chunk in work for slot in chunk.write_slots]
    end = 0
    for chunk, rows in zip(work, batch.row_offsets, strict=True):
        end += len(chunk.token_ids)
        assert batch.logit_rows[rows].tolist() == list(range(end - chunk.num_logits, end))
    assert len(batch.logit_rows) == sum(chunk.num_logits for chunk in work)


def simple_chunk(q: int, length: int) -> Chunk:
    slots = np.arange(length)
    return Chunk([1] * q, np.arange(length - q, length), slots[length - q :], slots)


def test_a_long_prefill_pads_no_decode_and_a_long_context_pads_no_short_one():
    shapes = [(1, 30), (512, 600), (5, 40), (1, 4000), (3, 3900)]
    groups = RaggedBatch.build([simple_chunk(q, length) for q, length in shapes]).groups
    assert [(tuple(group.query_rows.shape), group.context_slots.shape[1]) for group in groups] == [
        ((2, 5), 40),
        ((2, 3), 4000),
        ((1, 512), 600),
    ]


def test_many_contexts_of_all_lengths_pad_each_other_little():
    lengths = np.random.default_rng(0).permutation(np.arange(10, 330, 2))
    groups = RaggedBatch.build([simple_chunk(1, int(length)) for length in lengths]).groups
    num_slots = sum(group.context_slots.numel() for group in groups)
    assert num_slots <= 1.15 * lengths.sum(), "1.94 times as many in one rectangle"
    assert len(groups) <= 12


def test_plain_decode_of_one_sequence_needs_neither_mask_nor_reordering():
    batch = RaggedBatch.build([simple_chunk(1, 30)])
    assert batch.groups[0].mask is None
    assert batch.flat_order is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_ids": []},
        {"positions": [3]},
        {"positions": [[3, 4]]},
        {"write_slots": np.array([3])},
        {"context_slots": np.array([3])},
        {"num_logits": 3},
        {"visible": np.ones((2, 4), dtype=np.bool_)},
        {"visible": np.zeros((2, 5), dtype=np.bool_)},
    ],
)
def test_a_chunk_whose_parts_do_not_fit_is_refused(wrong: dict[str, object]):
    right = {
        "token_ids": [7, 8],
        "positions": [3, 4],
        "write_slots": np.array([3, 4]),
        "context_slots": np.arange(5),
        "visible": None,
        "num_logits": 2,
    }
    Chunk(**right)
    with pytest.raises(ValueError, match=r"a chunk of|logits wanted|`visible` must"):
        Chunk(**{**right, **wrong})


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="at least one chunk"):
        RaggedBatch.build([])
