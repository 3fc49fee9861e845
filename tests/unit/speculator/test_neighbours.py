"""Verifiers that share a speculator: none takes all of it, and what ends one's stream ends no other's."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from saguaro.types import CloseSequence, NotSpeculatingReason, VerifierFrame
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier, opening
from tests.unit.speculator.port import running_port
from tests.unit.speculator.test_port import commits, drawn_opens, run

OVERLOADED = NotSpeculatingReason.OVERLOADED


def test_a_verifier_that_took_all_places_gives_half_of_them_to_another(draft: Path) -> None:
    speculator = LoneSpeculator(draft, max_sequences=8)
    first, second = Verifier(speculator, budget=2), Verifier(speculator, budget=2)
    first.say(opens=tuple(opening(number, range(number, number + 15)) for number in range(12)))
    speculator.run()
    assert first.refusals == [(number, OVERLOADED) for number in range(8, 12)]
    second.say(opens=tuple(opening(number, range(number, number + 15)) for number in range(6)))
    speculator.run()
    assert set(first.stream.sessions) == set(second.stream.sessions) == set(range(4))
    assert all(second.entries_of(number)[-1].complete for number in range(4))
    assert first.refusals[4:] == [(number, OVERLOADED) for number in (7, 6, 5, 4)]
    # Whoever has as much as the other gets no more, so that nobody's sequences come and go.
    first.say(opens=(opening(20, range(15)),))
    speculator.run()
    assert first.refusals[-1] == (20, OVERLOADED)
    assert set(second.stream.sessions) == set(range(4))


def test_a_fault_while_entries_are_gathered_ends_one_sequence(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a test's fault")

    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.open(1, range(40))
    verifier.open(2, range(60, 90))
    speculator.scheduler.step()
    monkeypatch.setattr(verifier.stream.sessions[1], "entries_to_send", broken)
    speculator.run()
    assert verifier.refusals == [(1, OVERLOADED)]
    assert verifier.entries_of(2)[-1].complete


def test_a_frame_of_too_many_items_ends_its_stream_with_the_bound_and_no_other(draft: Path) -> None:
    async def scenario() -> None:
        async with running_port(draft, kv_tokens=1 << 14) as port, port.stream() as good, port.stream() as bad:
            await good.say(drawn_opens(2))
            await good.hear_complete(range(2), round=0)
            await bad.say(VerifierFrame(1, 2, 2, closes=tuple(CloseSequence(number, 1) for number in range(8193))))
            with pytest.raises(grpc.aio.AioRpcError, match="8193 closes; at most 8192") as error:
                await bad.call.read()
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            await good.say(commits(2, 0))
            await good.hear_complete(range(2), round=1)

    run(scenario)


def test_more_verifiers_than_a_speculator_serves_are_told_to_come_later(
    draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speculator_service.service._MOST_STREAMS", 1)

    async def scenario() -> None:
        async with running_port(draft, kv_tokens=1 << 14) as port, port.stream() as good:
            await good.say(drawn_opens(2))
            await good.hear_complete(range(2), round=0)
            async with port.stream() as other:
                with pytest.raises(grpc.aio.AioRpcError, match="serves no more") as error:
                    await other.call.read()
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            await good.say(commits(2, 0))
            await good.hear_complete(range(2), round=1)

    run(scenario)
