from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from saguaro.core.ngram import NgramIndex


def test_it_proposes_what_followed_the_last_time() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert NgramIndex().propose(tokens, 4) == (4, 5, 6, 1)
    assert NgramIndex().propose(tokens, 2) == (4, 5)


def test_the_latest_occurrence_wins() -> None:
    assert NgramIndex(2).propose([1, 2, 7, 1, 2, 8, 1, 2], 1) == (8,)


def test_nothing_is_proposed_for_what_never_occurred() -> None:
    assert NgramIndex().propose([1, 2, 3, 4], 4) == ()
    assert NgramIndex().propose([1, 2], 4) == ()


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_a_growing_sequence_gives_what_a_fresh_index_gives(tokens: list[int], steps: list[int]) -> None:
    grown, length = NgramIndex(2), 0
    for step in steps:
        length = min(length + step, len(tokens))
        assert grown.propose(tokens[:length], 3) == NgramIndex(2).propose(tokens[:length], 3)
