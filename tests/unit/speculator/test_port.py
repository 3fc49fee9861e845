"""Through a real port: messages within the limit, slow readers, a slow engine, opens of later versions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import grpc
import pytest

from saguaro.types import (
    AcceptanceMode,
    CommitRound,
    NotSpeculatingReason,
    SequenceStatus,
    VerificationOutcome,
    VerifierFrame,
)
from saguaro.wire.speculator import verifier_frame_to_proto
from tests.unit.speculator.lone_speculator import opening
from tests.unit.speculator.port import Link, Port, running_port

KV_TOKENS = 1 << 16


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # nobody would set an event
            await asyncio.sleep(0.01)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))  # type: ignore[arg-type]


def drawn_opens(count: int) -> VerifierFrame:
    opens = tuple(
        opening(number, range(number, number + 20), temperature=1.0, acceptance=AcceptanceMode.REJECTION)
        for number in range(count)
    )
    return VerifierFrame(1, 8, 64, opens=opens)


def commits(count: int, round: int, lookahead: int = 8) -> VerifierFrame:
    said = tuple(CommitRound(number, 1, round, VerificationOutcome(0, 5), ()) for number in range(count))
    return VerifierFrame(round + 2, lookahead, 64, commits=said)


def test_laws_of_many_sequences_go_over_a_link_with_small_messages(draft: Path) -> None:
    async def scenario() -> None:
        async with running_port(draft, max_message_bytes=65_536, kv_tokens=KV_TOKENS) as port, port.stream() as link:
            await link.say(drawn_opens(8))
            await link.hear_complete(range(8), round=0)
            await link.say(commits(8, 0))
            await link.hear_complete(range(8), round=1)
            assert not [status for frame in link.frames for status in frame.statuses]
            num_bytes = sum(len(law.token_ids) for e in link.entries for p in e.pieces for law in p.distributions)
            assert num_bytes > 4 * 65_536
            assert port.worker.scheduler.num_dropped_tokens == 0

    run(scenario)


def test_a_verifier_that_does_not_read_finds_the_latest_rounds_and_little_else(draft: Path) -> None:
    num_rounds = 30

    async def scenario() -> None:
        async with running_port(draft, kv_tokens=KV_TOKENS) as port, port.stream() as link:
            await link.say(drawn_opens(4))
            for round in range(num_rounds):
                await until(partial(_has_guessed, port, [round] * 4))
                await link.say(commits(4, round))
            await until(lambda: _rounds_of(port) == [num_rounds] * 4)
            await link.hear_complete(range(4), round=num_rounds)
            rounds = {entries.round for entries in link.entries}
            assert len(rounds) < num_rounds // 2, sorted(rounds)

    run(scenario)


def _rounds_of(port: Port) -> list[int]:
    streams = port.worker.scheduler._streams
    return [session.round for stream in streams for session in stream.sessions.values()]


def _has_guessed(port: Port, rounds: list[int]) -> bool:
    sessions = [session for stream in port.worker.scheduler._streams for session in stream.sessions.values()]
    return _rounds_of(port) == rounds and not any(session.has_work for session in sessions)


def test_frames_that_come_while_the_engine_is_busy_are_bounded_and_none_is_lost(draft: Path) -> None:
    num_rounds = 2000

    async def scenario() -> None:
        async with running_port(draft, kv_tokens=KV_TOKENS) as port, port.stream() as link:
            gate, runner = threading.Event(), port.worker._model.runner
            real = runner.forward

            def forward(chunks: object) -> object:
                assert gate.wait(60)
                return real(chunks)  # type: ignore[arg-type]

            runner.forward = forward  # type: ignore[method-assign, assignment]
            await link.say(VerifierFrame(1, 2, 2, opens=(opening(0, range(20)),)))
            writer = asyncio.create_task(_write_all(link, num_rounds))
            most = 0
            for _ in range(50):
                await asyncio.sleep(0.01)
                most = max(most, len(port.worker.scheduler._inbox))
            assert 0 < most <= 256
            gate.set()
            await writer
            await until(lambda: _rounds_of(port) == [num_rounds])
            session = port.worker.scheduler._streams[0].sessions[0]
            assert session.prefix == [*range(20), *(round % 200 for round in range(num_rounds))]

    run(scenario)


async def _write_all(link: Link, num_rounds: int) -> None:
    for round in range(num_rounds):
        said = CommitRound(0, 1, round, VerificationOutcome(0, round % 200), ())
        await link.say(VerifierFrame(round + 2, 2, 2, commits=(said,)))


def test_an_open_that_this_version_cannot_read_costs_that_sequence_only(draft: Path) -> None:
    async def scenario() -> None:
        async with running_port(draft, kv_tokens=KV_TOKENS) as port, port.stream() as link:
            message = verifier_frame_to_proto(drawn_opens(2))
            message.opens[1].sampling.acceptance = 77  # type: ignore[assignment]
            await link.say(message)
            await link.hear_complete([0], round=0)
            statuses = [status for frame in link.frames for status in frame.statuses]
            assert statuses == [SequenceStatus(1, 1, NotSpeculatingReason.MALFORMED)]

    run(scenario)


def test_a_stream_whose_reading_fails_ends_with_a_status_and_frees_all(
    draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_port(draft, kv_tokens=KV_TOKENS) as port, port.stream() as link:
            await link.say(drawn_opens(2))
            await link.hear_complete(range(2), round=0)

            def broken(message: object) -> object:
                raise RuntimeError("a test's fault")

            monkeypatch.setattr("speculator_service.service.verifier_frame_from_proto", broken)
            await link.say(commits(2, 0))
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await _read_to_the_end(link)
            assert error.value.code() is grpc.StatusCode.INTERNAL
            await until(lambda: port.worker.info.free_kv_blocks == port.worker.info.num_kv_blocks)

    run(scenario)


async def _read_to_the_end(link: Link) -> None:
    while await link.call.read() is not grpc.aio.EOF:
        pass
