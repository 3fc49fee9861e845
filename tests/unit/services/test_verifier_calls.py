"""Calls at the verifier's port that cross one another: an abort and a compilation, two changes of the policy."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from saguaro.errors import SequenceFault
from saguaro.types import GenerationRequest, SamplingParams
from saguaro.v1 import common_pb2, verifier_pb2
from tests.unit.services.conftest import TinyModels
from tests.unit.services.service_house import DEADLINE_SECONDS, House, free_port, with_verifier
from verifier_service.service import VerifierService
from verifier_service.speculator_link import SpeculatorLink
from verifier_service.worker import VerifierWorker


def constrained(request_id: str) -> verifier_pb2.VerifierServiceGenerateRequest:
    return verifier_pb2.VerifierServiceGenerateRequest(
        request_id=request_id,
        prompt_token_ids=range(40, 63),
        max_tokens=4,
        sampling=common_pb2.SamplingParams(regex="[a-z]{2,9}"),
    )


@contextlib.contextmanager
def compilations_held(house: House) -> Iterator[None]:
    """The threads that compile are busy."""
    assert isinstance(house.worker, VerifierWorker)
    go_on = threading.Event()
    threads = house.worker._compiler._threads
    for _ in range(threads._max_workers):
        threads.submit(go_on.wait, DEADLINE_SECONDS)
    try:
        yield
    finally:
        go_on.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  # what it waits for happens behind a port
            await asyncio.sleep(0.005)


def num_submitted(house: House) -> int:
    assert isinstance(house.worker, VerifierWorker)
    return house.worker.loop._num_submitted


def is_beginning(house: House, request_id: str) -> bool:
    assert isinstance(house.service, VerifierService)
    return request_id in house.service._stops


def test_an_abort_while_the_constraint_compiles_ends_the_generation(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        with compilations_held(house):
            call = house.verifier.Generate(constrained("doomed"), timeout=DEADLINE_SECONDS)
            await until(lambda: is_beginning(house, "doomed"))
            await house.verifier.Abort(verifier_pb2.AbortRequest(request_id="doomed"), timeout=DEADLINE_SECONDS)
            events = [response async for response in call]
        assert [event.WhichOneof("event") for event in events] == ["started", "finished"]
        assert events[-1].finished.reason == common_pb2.FINISH_REASON_ABORTED
        assert events[-1].finished.num_generated_tokens == 0
        assert not is_beginning(house, "doomed")
        assert await house.generate("doomed")  # the id is free again, and nothing else was ever begun
        assert num_submitted(house) == 1

    with_verifier(tiny, scenario)


def test_a_call_cancelled_while_its_constraint_compiles_never_begins(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        with compilations_held(house):
            call = house.verifier.Generate(constrained("gone"), timeout=DEADLINE_SECONDS)
            await until(lambda: is_beginning(house, "gone"))
            call.cancel()
            await until(lambda: not is_beginning(house, "gone"))
        assert await house.generate("after")
        assert num_submitted(house) == 1

    with_verifier(tiny, scenario)


def test_a_second_generation_of_an_id_that_compiles_is_refused(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        with compilations_held(house):
            call = house.verifier.Generate(constrained("twice"), timeout=DEADLINE_SECONDS)
            await until(lambda: is_beginning(house, "twice"))
            with pytest.raises(grpc.aio.AioRpcError, match='generation "twice" runs already'):
                await house.generate("twice")
        assert [event.WhichOneof("event") async for event in call][-1] == "finished"

    with_verifier(tiny, scenario)


def test_changes_of_the_policy_at_the_same_time_are_all_in_force(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, VerifierWorker)
        for bound in range(1, 13):
            wanted = common_pb2.ClassPolicy(max_lookahead_tokens=bound)
            changes = [common_pb2.TrafficPolicy(**{name: wanted}) for name in ("latency", "balanced", "throughput")]
            requests = [verifier_pb2.SetPolicyRequest(classes=change) for change in changes]
            await asyncio.gather(*(house.verifier.SetPolicy(each, timeout=DEADLINE_SECONDS) for each in requests))
            policy = house.worker.info.classes
            in_force = [policy.latency.max_lookahead, policy.balanced.max_lookahead, policy.throughput.max_lookahead]
            assert in_force == [bound] * 3

    with_verifier(tiny, scenario)


def test_a_change_that_a_hung_engine_does_not_take_is_unavailable(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verifier_service.engine_calls.ENGINE_SECONDS", 0.2)

    async def scenario(house: House) -> None:
        house.runner.hold.clear()
        answering = asyncio.create_task(house.generate("hung"))
        await until(lambda: num_submitted(house) == 1)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await house.verifier.SetPolicy(verifier_pb2.SetPolicyRequest(policy="auto"), timeout=DEADLINE_SECONDS)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        house.runner.hold.set()
        assert await answering

    with_verifier(tiny, scenario)


def test_a_generation_whose_first_event_cannot_be_sent_does_not_run_on(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.service, VerifierService)
        assert isinstance(house.worker, VerifierWorker)
        taken: list[object] = []

        def sink(event: object) -> None:
            taken.append(event)
            raise ValueError("a test's fault")

        request = GenerationRequest("lost", tuple(range(40, 63)), max_tokens=100, sampling=SamplingParams())
        with pytest.raises(ValueError, match="a test's fault"):
            await house.service._begin(request, sink)
        scheduler = house.worker.loop.scheduler
        await until(lambda: house.worker.loop._num_seen == 1 and not scheduler.running and not scheduler.waiting)
        assert not is_beginning(house, "lost")
        assert sum(house.worker.blocks) == 2 * house.worker.blocks[0]

    with_verifier(tiny, scenario)


def test_an_event_that_its_sink_cannot_take_costs_the_others_nothing(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, VerifierWorker)
        ended, taken = asyncio.Event(), list[object]()
        expected = await house.generate("before")

        def broken(event: object) -> None:
            taken.append(event)
            if isinstance(event, SequenceFault):
                ended.set()
            raise ValueError("a test's fault")

        handle = house.worker.submit(GenerationRequest("broken", tuple(range(40, 63)), max_tokens=8), broken)
        tokens, _ = await asyncio.gather(house.generate("bystander"), ended.wait())
        handle.abort()
        assert tokens == expected
        assert not isinstance(taken[0], SequenceFault)

    with_verifier(tiny, scenario)


def test_a_fault_of_the_link_costs_speculation_and_the_link_is_begun_anew(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[SpeculatorLink] = []

    async def run(link: SpeculatorLink) -> None:
        runs.append(link)
        raise ZeroDivisionError("a test's fault")

    monkeypatch.setattr(SpeculatorLink, "run", run)

    async def scenario(house: House) -> None:
        await until(lambda: len(runs) >= 3)
        assert await house.generate("undrafted")
        assert isinstance(house.worker, VerifierWorker)
        assert "the link to the speculator failed" in house.worker.info.not_speculating_reason

    with_verifier(tiny, scenario, speculator=f"127.0.0.1:{free_port()}", reconnect_seconds=0.05)


def test_an_audit_that_has_to_compile_holds_no_request_up(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, VerifierWorker)
        worker = house.worker
        with compilations_held(house):
            call = house.verifier.Generate(constrained("audited"), timeout=DEADLINE_SECONDS)
            await until(lambda: is_beginning(house, "audited"))
        with compilations_held(house):  # begins when the request's own compilation is done
            assert [event.WhichOneof("event") async for event in call][-1] == "finished"
            worker._compiler._compiled.clear()
            async with asyncio.timeout(DEADLINE_SECONDS / 3):
                assert await house.generate("in between")
        await until(lambda: worker.info.num_audited == 2)
        assert worker.info.num_mismatched == 0

    with_verifier(tiny, scenario, audit_rate=1.0)
