"""What a verifier has not read is bounded: what it is beyond is dropped before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from saguaro.errors import Unavailable
from saguaro.types import (
    CloseSequence,
    CommitRound,
    NotSpeculatingReason,
    SequenceStatus,
    SpeculationEntries,
    SpeculationPiece,
    SpeculatorFrame,
    VerificationOutcome,
    VerifierFrame,
)
from speculator_service.outgoing import Outgoing


def entries(sequence_id: int, round: int, epoch: int = 1, token: int = 5) -> SpeculationEntries:
    piece = SpeculationPiece(VerificationOutcome(0, token), 0, (1, 2))
    return SpeculationEntries(sequence_id, epoch, round, (piece,), complete=True)


def of(*items: SpeculationEntries) -> SpeculatorFrame:
    return SpeculatorFrame(items, (), 9)


def in_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 10))  # type: ignore[arg-type]


def test_thousands_of_rounds_unread_are_the_last_two_of_each_sequence() -> None:
    async def scenario() -> None:
        outgoing = Outgoing()
        for round in range(5000):
            outgoing.put(of(*(entries(sequence_id, round) for sequence_id in range(4))))
        await asyncio.sleep(0)
        frame = await outgoing.get()
        assert frame is not None
        assert [(item.sequence_id, item.round) for item in frame.entries] == [
            (sequence_id, round) for sequence_id in range(4) for round in (4998, 4999)
        ]
        assert outgoing.num_superseded == 4 * 4998
        assert frame.free_kv_blocks == 9

    in_loop(scenario)


def test_an_answer_just_in_time_is_sent_before_the_guesses_of_what_follows_it() -> None:
    async def scenario() -> None:
        outgoing = Outgoing()
        answer, guesses, more = entries(1, 3), entries(1, 4), entries(1, 4, token=6)
        for item in (answer, guesses, more):
            outgoing.put(of(item))
        await asyncio.sleep(0)
        assert await outgoing.get() == of(answer, guesses, more)

    in_loop(scenario)


def test_a_commit_drops_what_was_guessed_of_its_round_and_a_close_all_of_its_epoch() -> None:
    async def scenario() -> None:
        outgoing = Outgoing()
        outgoing.put(of(entries(1, 3), entries(1, 4), entries(2, 7, epoch=2), entries(3, 1)))
        await asyncio.sleep(0)
        outgoing.forget(
            VerifierFrame(
                *(1, 3, 8),
                commits=(CommitRound(1, 1, 3, VerificationOutcome(0, 5), ()),),
                closes=(CloseSequence(2, 1), CloseSequence(3, 1)),
            )
        )
        assert await outgoing.get() == of(entries(1, 4), entries(2, 7, epoch=2))

    in_loop(scenario)


def test_entries_of_another_epoch_replace_those_before() -> None:
    async def scenario() -> None:
        outgoing = Outgoing()
        outgoing.put(of(entries(1, 3)))
        outgoing.put(of(entries(1, 3, epoch=2)))
        await asyncio.sleep(0)
        assert await outgoing.get() == of(entries(1, 3, epoch=2))

    in_loop(scenario)


def test_the_last_status_of_a_sequence_is_kept_and_too_many_end_the_stream() -> None:
    async def scenario() -> None:
        outgoing = Outgoing()
        reasons = NotSpeculatingReason.OVERLOADED, NotSpeculatingReason.UNKNOWN_SEQUENCE
        statuses = tuple(SequenceStatus(1, epoch, reason) for epoch, reason in enumerate(reasons))
        for status in statuses:
            outgoing.put(SpeculatorFrame(statuses=(status,)))
        await asyncio.sleep(0)
        assert await outgoing.get() == SpeculatorFrame(statuses=statuses[1:])
        outgoing.put(SpeculatorFrame(statuses=tuple(SequenceStatus(n, 1, reasons[0]) for n in range(70_000))))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="65536 statuses"):
            await outgoing.get()

    in_loop(scenario)
