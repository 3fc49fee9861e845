"""The cache: an outcome finds its own entry of its own round and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saguaro.core.speculation_cache import CacheAnswer, SpeculationCache
from saguaro.types import (
    LookupResult,
    SparseDistribution,
    SpeculationEntries,
    SpeculationPiece,
    TokenIds,
    VerificationOutcome,
)

GUESS = VerificationOutcome(1, 70)
OTHER = VerificationOutcome(2, 70)


def piece(outcome: VerificationOutcome, offset: int, *token_ids: int) -> SpeculationPiece:
    return SpeculationPiece(outcome, offset, token_ids)


def entries(
    *pieces: SpeculationPiece,
    sequence_id: int = 5,
    epoch: int = 1,
    round: int = 3,
    complete: bool = False,
    drafting_ns: int = 0,
) -> SpeculationEntries:
    return SpeculationEntries(sequence_id, epoch, round, pieces, complete, drafting_ns)


@pytest.fixture
def cache() -> SpeculationCache:
    cache = SpeculationCache(max_entries=4, max_tokens=3)
    cache.expect(5, epoch=1, round=3)
    return cache


def test_an_outcome_finds_its_own_entry_and_nothing_else(cache: SpeculationCache) -> None:
    cache.insert(entries(piece(GUESS, 0, 1, 2), piece(OTHER, 0, 8), drafting_ns=9))
    assert cache.lookup(5, GUESS) == CacheAnswer(LookupResult.HIT, (1, 2), 9)
    assert cache.lookup(5, OTHER) == CacheAnswer(LookupResult.HIT, (8,), 9)
    assert cache.lookup(5, VerificationOutcome(1, 71)) == CacheAnswer(LookupResult.LATE)


def test_an_outcome_without_entry_is_late_until_the_round_is_complete_and_then_a_miss(cache: SpeculationCache) -> None:
    assert cache.lookup(5, GUESS).result is LookupResult.LATE
    cache.insert(entries(complete=True))
    assert cache.lookup(5, GUESS).result is LookupResult.MISS


def test_a_neighbour_is_the_likeliest_speculation_after_as_many_accepted_tokens(cache: SpeculationCache) -> None:
    cache.insert(entries(piece(OTHER, 0, 8), piece(GUESS, 0, 1, 2), piece(VerificationOutcome(1, 5), 0, 9)))
    assert cache.neighbour(5, VerificationOutcome(1, 71)).token_ids == (1, 2)
    assert cache.neighbour(5, VerificationOutcome(0, 71)).token_ids == ()
    assert cache.neighbour(6, GUESS).token_ids == ()


def test_an_entry_drafted_just_in_time_after_completion_is_found(cache: SpeculationCache) -> None:
    cache.insert(entries(complete=True))
    cache.insert(entries(piece(GUESS, 0, 4)))
    assert cache.lookup(5, GUESS).token_ids == (4,)


def test_pieces_in_order_extend_and_duplicates_change_nothing(cache: SpeculationCache) -> None:
    cache.insert(entries(piece(GUESS, 0, 1), drafting_ns=10))
    cache.insert(entries(piece(GUESS, 1, 2), drafting_ns=20))
    assert cache.insert(entries(piece(GUESS, 0, 1, 2), piece(GUESS, 1, 2), piece(GUESS, 2), drafting_ns=30)) == 0
    assert cache.lookup(5, GUESS) == CacheAnswer(LookupResult.HIT, (1, 2), 20)
    assert cache.insert(entries(piece(GUESS, 1, 2, 3), drafting_ns=40)) == 0
    assert cache.lookup(5, GUESS) == CacheAnswer(LookupResult.HIT, (1, 2, 3), 40)


def test_a_piece_after_a_gap_or_in_contradiction_is_dropped_and_counted(cache: SpeculationCache) -> None:
    assert cache.insert(entries(piece(GUESS, 1, 2))) == 1
    assert cache.lookup(5, GUESS).result is LookupResult.LATE
    assert cache.insert(entries(piece(GUESS, 0, 1), piece(GUESS, 2, 3), piece(GUESS, 0, 9, 9))) == 2
    assert cache.lookup(5, GUESS).token_ids == (1,)
    assert cache.num_stale == 3


def test_an_empty_piece_is_no_hit(cache: SpeculationCache) -> None:
    assert cache.insert(entries(piece(GUESS, 0))) == 0
    assert cache.lookup(5, GUESS).result is LookupResult.LATE


@pytest.mark.parametrize(
    "stale",
    [
        entries(piece(GUESS, 0, 1), round=2, complete=True),
        entries(piece(GUESS, 0, 1), round=5, complete=True),
        entries(piece(GUESS, 0, 1), epoch=0, complete=True),
        entries(piece(GUESS, 0, 1), epoch=2, complete=True),
        entries(piece(GUESS, 0, 1), sequence_id=6, complete=True),
    ],
    ids=["earlier round", "two rounds later", "earlier epoch", "later epoch", "unknown sequence"],
)
def test_entries_of_elsewhere_are_dropped_and_counted(cache: SpeculationCache, stale: SpeculationEntries) -> None:
    assert cache.insert(stale) == 1
    assert cache.num_stale == 1
    assert cache.lookup(5, GUESS).result is LookupResult.LATE


def test_the_next_round_drops_the_entries_of_the_last_and_expecting_again_keeps_them(cache: SpeculationCache) -> None:
    cache.insert(entries(piece(GUESS, 0, 1), complete=True))
    cache.expect(5, epoch=1, round=3)
    assert cache.lookup(5, GUESS).result is LookupResult.HIT
    cache.expect(5, epoch=1, round=4)
    assert cache.lookup(5, GUESS).result is LookupResult.LATE


def test_entries_of_the_round_after_are_kept_for_it_and_not_answered_before(cache: SpeculationCache) -> None:
    assert cache.insert(entries(piece(GUESS, 0, 1), round=4, complete=True)) == 0
    assert cache.lookup(5, GUESS).result is LookupResult.LATE
    cache.expect(5, epoch=1, round=4)
    assert cache.lookup(5, GUESS) == CacheAnswer(LookupResult.HIT, (1,))
    cache.expect(5, epoch=1, round=6)
    assert cache.lookup(5, GUESS).result is LookupResult.LATE


def test_a_sequence_of_which_nothing_is_expected_is_not_speculated(cache: SpeculationCache) -> None:
    cache.insert(entries(piece(GUESS, 0, 1)))
    cache.close(5)
    cache.close(6)
    assert [cache.lookup(i, GUESS) for i in (5, 6)] == [CacheAnswer(LookupResult.NOT_SPECULATED)] * 2


def test_more_outcomes_or_tokens_than_allowed_are_refused_and_counted(cache: SpeculationCache) -> None:
    cache.insert(entries(*(piece(VerificationOutcome(0, token), 0, token) for token in range(6))))
    assert cache.num_refused == 2
    assert [cache.lookup(5, VerificationOutcome(0, token)).token_ids for token in range(6)] == [
        (0,), (1,), (2,), (3,), (), ()
    ]  # fmt: skip
    assert cache.insert(entries(piece(VerificationOutcome(0, 1), 0, 1, 2, 3, 4))) == 0
    assert cache.lookup(5, VerificationOutcome(0, 1)).token_ids == (1, 2, 3)
    assert (cache.num_refused, cache.num_stale) == (3, 0)


# --- random interleavings ---------------------------------------------------------------------------------------------

keys = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))  # sequence, epoch, round
outcomes = st.builds(VerificationOutcome, st.integers(0, 2), st.integers(0, 2))


def true_speculation(key: tuple[int, int, int], outcome: VerificationOutcome) -> TokenIds:
    """Tokens that name the one place they belong to."""
    sequence_id, epoch, round = key
    name = ((((sequence_id * 10 + epoch) * 10 + round) * 10 + outcome.num_accepted) * 10 + outcome.bonus_token) * 10
    return tuple(name + place for place in range(4))


events = st.one_of(
    st.tuples(st.just("expect"), keys),
    st.tuples(st.just("close"), keys),
    st.tuples(st.just("insert"), keys, outcomes, st.integers(0, 3), st.integers(0, 4), st.booleans()),
)


@settings(deadline=None, derandomize=True)
@given(st.lists(events, max_size=60))
def test_whatever_the_interleaving_a_hit_is_a_prefix_of_the_expected_round_s_own_speculation(
    events: list[tuple],  # type: ignore[type-arg]
) -> None:
    cache = SpeculationCache(max_entries=9, max_tokens=4)
    expected: dict[int, tuple[int, int, int]] = {}
    # Of each round that is collected: how many tokens are known of each outcome, and whether it is complete.
    collected: dict[tuple[int, int, int], tuple[dict[VerificationOutcome, int], bool]] = {}
    for kind, key, *rest in events:
        sequence_id = key[0]
        if kind == "expect":
            cache.expect(*key)
            if expected.get(sequence_id) != key:
                expected[sequence_id] = key
                kept = collected.get(key, ({}, False))
                collected = {other: item for other, item in collected.items() if other[0] != sequence_id}
                collected |= {key: kept, (key[0], key[1], key[2] + 1): ({}, False)}
        elif kind == "close":
            cache.close(sequence_id)
            expected.pop(sequence_id, None)
            collected = {other: item for other, item in collected.items() if other[0] != sequence_id}
        else:
            outcome, start, end, complete = rest
            tokens = true_speculation(key, outcome)[start:end]
            num_stale = cache.insert(
                entries(
                    piece(outcome, start, *tokens), sequence_id=key[0], epoch=key[1], round=key[2], complete=complete
                )
            )
            if key in collected:
                known, was_complete = collected[key]
                fits = start <= known.get(outcome, 0)
                if fits and start + len(tokens) > known.get(outcome, 0):
                    known[outcome] = start + len(tokens)
                collected[key] = known, was_complete or complete
                assert num_stale == (not fits)
            else:
                assert num_stale == 1
        for sequence_id in range(3):
            for outcome in (VerificationOutcome(k, bonus) for k in range(3) for bonus in range(3)):
                answer = cache.lookup(sequence_id, outcome)
                if sequence_id not in expected:
                    assert answer.result is LookupResult.NOT_SPECULATED
                    continue
                known, is_complete = collected[expected[sequence_id]]
                own = true_speculation(expected[sequence_id], outcome)[: known.get(outcome, 0)]
                no_hit = LookupResult.MISS if is_complete else LookupResult.LATE
                assert answer == CacheAnswer(LookupResult.HIT if own else no_hit, own)


def drawn(offset: int, *token_ids: int) -> SpeculationPiece:
    laws = tuple(SparseDistribution(bytes([token]), b"") for token in token_ids)
    return SpeculationPiece(GUESS, offset, token_ids, laws)


def test_each_token_keeps_the_law_that_it_came_with(cache: SpeculationCache) -> None:
    pieces = (drawn(0, 1), drawn(0, 1, 2), drawn(1, 2), drawn(1, 2, 3, 4))  # overlapping, and longer than may be
    for item in pieces:
        cache.insert(entries(item))
    answer = cache.lookup(5, GUESS)
    assert answer.token_ids == (1, 2, 3)
    assert answer.distributions == drawn(0, 1, 2, 3).distributions


@pytest.mark.parametrize("has_laws", [(True, False), (False, True)])
def test_a_piece_without_laws_leaves_too_few_for_all_tokens(
    cache: SpeculationCache, has_laws: tuple[bool, bool]
) -> None:
    bare = (piece(GUESS, 0, 1), piece(GUESS, 1, 2))
    with_laws = (drawn(0, 1), drawn(1, 2))
    for index, has in enumerate(has_laws):
        cache.insert(entries((with_laws if has else bare)[index]))
    answer = cache.lookup(5, GUESS)
    assert (len(answer.token_ids), len(answer.distributions)) == (2, 1)
