"""Ends, cancellations, faults and stale messages: nothing leaks, nothing is emitted past the end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from saguaro.errors import SequenceFault, Unavailable
from saguaro.types import (
    FinishReason,
    GenerationRequest,
    LookupResult,
    NotSpeculatingReason,
    SamplingParams,
    SequenceStatus,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    TokenProvenance,
    VerificationOutcome,
)
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio, Pace

PROMPT = tuple(range(40, 63))


def request(**changes: object) -> GenerationRequest:
    return GenerationRequest("r", PROMPT, **{"max_tokens": 30, "include_rounds": True, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(tiny: TinyModels) -> list[int]:
    return InMemoryTrio(tiny.target, None).generate(request()).tokens


@pytest.mark.parametrize("end", range(1, 12))
def test_an_end_token_inside_an_accepted_run_ends_it_there(tiny: TinyModels, plain: list[int], end: int) -> None:
    eos = plain[end]
    trio = InMemoryTrio(tiny.target, tiny.target, eos_token_ids=[eos])  # hits only, so runs are long
    answer = trio.generate(request())
    assert answer.tokens == plain[: plain.index(eos) + 1]
    assert answer.finished.reason is FinishReason.STOP
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_max_tokens_inside_an_accepted_run_ends_it_there(tiny: TinyModels, plain: list[int], max_tokens: int) -> None:
    trio = InMemoryTrio(tiny.target, tiny.target)
    answer = trio.generate(request(max_tokens=max_tokens))
    assert answer.tokens == plain[:max_tokens]
    assert answer.finished.reason is FinishReason.LENGTH
    assert answer.finished.num_generated_tokens == max_tokens
    trio.assert_all_blocks_free()


def test_the_earlier_of_end_token_and_max_tokens_wins(tiny: TinyModels, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.target, eos_token_ids=[plain[6]])
    assert trio.generate(request(max_tokens=5)).finished.reason is FinishReason.LENGTH
    assert trio.generate(request(max_tokens=7)).finished.reason is FinishReason.STOP
    assert trio.generate(request(ignore_eos=True)).tokens == plain


def test_ignoring_end_tokens_goes_on_to_the_context_limit(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    alone = InMemoryTrio(tiny.target, None)
    answer = trio.generate(request(max_tokens=None))
    assert len(PROMPT) + len(answer.tokens) == trio.target.context_limit == 128
    assert answer.finished.reason is FinishReason.LENGTH
    assert answer.tokens == alone.generate(request(max_tokens=None)).tokens
    trio.assert_all_blocks_free()


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 6])
def test_cancelling_frees_both_sides_and_bystanders_go_on(
    tiny: TinyModels, plain: list[int], pace: Pace, steps: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace)
    doomed, doomed_answer = trio.submit(request())
    _, bystander = trio.submit(request())
    for _ in range(steps):
        trio.step()
    trio.loop.abort(doomed)
    trio.run(bystander)
    assert bystander.tokens == plain
    assert not doomed_answer.is_over
    trio.assert_all_blocks_free()


def test_a_second_prompt_with_a_known_prefix_reuses_its_blocks_and_says_the_same(
    tiny: TinyModels, plain: list[int]
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    cold, warm = trio.generate(request()), trio.generate(request())
    assert cold.finished.num_cached_prompt_tokens == 0
    assert warm.finished.num_cached_prompt_tokens == 20  # five whole blocks of four, the last token computed anew
    assert cold.tokens == warm.tokens == plain


def test_a_second_turn_over_an_accepted_run_equals_the_cold_run(tiny: TinyModels, plain: list[int]) -> None:
    second_turn = (*PROMPT, *plain[:17], 9, 8, 7)
    trio = InMemoryTrio(tiny.target, tiny.draft)
    trio.generate(request())
    warm = trio.generate(GenerationRequest("r2", second_turn, max_tokens=20))
    assert warm.finished.num_cached_prompt_tokens == 40
    assert warm.tokens == InMemoryTrio(tiny.target, None).generate(
        GenerationRequest("r2", second_turn, max_tokens=20)
    ).tokens  # fmt: skip


def test_provenance_says_where_each_token_came_from(tiny: TinyModels) -> None:
    answer = InMemoryTrio(tiny.target, tiny.draft).generate(request())
    rounds = answer.finished.speculation.rounds
    assert len(answer.provenance) == len(answer.tokens) == 30
    drafted = [kind for kind in answer.provenance if kind in (TokenProvenance.CACHED_DRAFT, TokenProvenance.LATE_DRAFT)]
    assert len(drafted) == sum(report.num_accepted_tokens for report in rounds)
    plain = InMemoryTrio(tiny.target, None).generate(request())
    assert set(plain.provenance) == {TokenProvenance.PLAIN}


def test_on_a_hit_nothing_waits_for_the_draft(tiny: TinyModels) -> None:
    rounds = InMemoryTrio(tiny.target, tiny.target).generate(request()).finished.speculation.rounds
    after_hits = [after for before, after in pairwise(rounds) if before.lookup is LookupResult.HIT]
    assert after_hits
    for report in after_hits:
        # The test's clock ticks at each reading; a wait for the draft would be a millisecond at least.
        assert report.num_draft_tokens > 0
        assert report.drafting_ns > 0
        assert report.wait_ns < 100_000


def test_a_hung_speculator_is_waited_for_once_and_given_up_after_a_second(tiny: TinyModels, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=Pace.HUNG)
    sequence, answer = trio.submit(request())
    waits = 0
    while not answer.is_over:
        waited = sequence.wait_until_ns is not None
        trio.step()
        waits += sequence.wait_until_ns is not None and not waited
        trio.now_ns += 40_000_000  # a step of a target that takes its time
    assert answer.tokens == plain
    assert waits == 1
    assert trio.stalls == 1
    assert "stalled" in answer.finished.speculation.reason


def test_entries_of_another_epoch_round_or_vocabulary_change_nothing(tiny: TinyModels, plain: list[int]) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    sequence, answer = trio.submit(request())
    wrong = (SpeculationPiece(VerificationOutcome(0, plain[0]), 0, (1, 2, 3)),)
    trio.step()
    for entries in (
        SpeculationEntries(sequence.sequence_id, 99, 1, wrong, complete=True),
        SpeculationEntries(sequence.sequence_id, 1, 0, wrong, complete=True),
        SpeculationEntries(sequence.sequence_id + 1, 1, 1, wrong, complete=True),
    ):
        trio.speculations.receive_entries(SpeculatorFrame((entries,)), now_ns=0)
    assert trio.speculations.num_stale == 3
    alien = (SpeculationPiece(VerificationOutcome(0, plain[1]), 0, (10**6,)),)
    trio.speculations.receive_entries(SpeculatorFrame((SpeculationEntries(1, 1, 1, alien, True),)), now_ns=0)
    assert trio.speculations.num_malformed == 1
    trio.run(answer)
    assert answer.tokens == plain


@pytest.mark.parametrize("reason", list(NotSpeculatingReason))
def test_a_refused_sequence_goes_on_plainly_or_is_opened_anew(
    tiny: TinyModels, plain: list[int], reason: NotSpeculatingReason
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, answer = trio.submit(request())
    for _ in range(3):
        trio.step()
    trio.speculations.receive_statuses(SpeculatorFrame((), (SequenceStatus(1, 1, reason),)), trio.now_ns)
    trio.run(answer)
    assert answer.tokens == plain
    reopened = answer.finished.speculation.speculating
    assert reopened == (reason is NotSpeculatingReason.UNKNOWN_SEQUENCE)


def test_a_fault_in_a_step_ends_its_sequences_with_an_error_and_later_ones_are_served(
    tiny: TinyModels, plain: list[int]
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft)
    _, broken = trio.submit(request())
    trio.step()
    trio.loop.fail_running(RuntimeError("a test's fault"))
    assert isinstance(broken.events[-1], SequenceFault)
    trio.assert_all_blocks_free()
    assert trio.generate(request()).tokens == plain


def test_a_full_queue_refuses_at_once_and_names_the_limit(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, None, max_running=1)
    trio.submit(request())
    trio.step()  # it runs; those that follow wait
    for _ in range(64):
        trio.submit(request())
    with pytest.raises(Unavailable, match="limit is 64"):
        trio.submit(request())


def test_sampling_parameters_of_each_row_are_its_own(tiny: TinyModels) -> None:
    kinds = [SamplingParams(), SamplingParams(temperature=0.7, seed=3, top_p=0.8), SamplingParams(1.3, 0.95, 20, 4)]
    solo = [InMemoryTrio(tiny.target, None).generate(request(sampling=kind)).tokens for kind in kinds]
    trio = InMemoryTrio(tiny.target, tiny.draft)
    answers = [trio.submit(request(sampling=kind))[1] for kind in kinds]
    trio.run(*answers)
    assert [answer.tokens for answer in answers] == solo


@pytest.mark.parametrize("pace", [Pace.FAST, Pace.STEPWISE, Pace.LATE])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_who_is_cancelled_holds_no_block_after_the_next_step_of_either_side(
    tiny: TinyModels, pace: Pace, steps: int
) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, pace=pace)
    doomed, _ = trio.submit(request())
    bystander, _ = trio.submit(GenerationRequest("other", PROMPT[::-1], max_tokens=30))
    for _ in range(steps):
        trio.step()
    assert doomed.table.blocks
    trio.loop.abort(doomed)
    trio.loop.step()
    assert not doomed.table.blocks
    used = trio.target.block_manager.num_blocks - trio.target.block_manager.num_free
    assert used == len(bystander.table.blocks)
    assert trio.draft is not None
    trio.scheduler.step()
    assert set(trio.stream.sessions) == {bystander.sequence_id}
    drafted = trio.draft.block_manager.num_blocks - trio.draft.block_manager.num_free
    assert drafted == len(set(trio.stream.sessions[bystander.sequence_id].table.blocks))
