"""Health says what the engine does: a model that hangs or fails, and an engine thread that is dead, are seen."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from saguaro.errors import ServiceFault
from speculator_service.worker import SpeculatorWorker
from tests.unit.services.conftest import TinyModels
from tests.unit.services.service_house import (
    DEADLINE_SECONDS,
    NOT_SERVING,
    SERVING,
    House,
    with_speculator,
    with_verifier,
)
from verifier_service.worker import VerifierWorker


def test_a_hung_forward_turns_health_and_one_that_comes_back_turns_it_again(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        await house.health(SERVING)
        expected = await house.generate("before")
        house.runner.hold.clear()
        answering = asyncio.create_task(house.generate("hung"))
        await house.health(NOT_SERVING)
        house.runner.hold.set()
        assert await answering == expected
        await house.health(SERVING)

    with_verifier(tiny, scenario)


def test_a_model_that_fails_turns_health_and_requests_may_go_elsewhere_until_it_works_again(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        expected = await house.generate("before")
        house.runner.fails = True
        for request_id in ("met by the fault", "come after it"):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await house.generate(request_id)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        await house.health(NOT_SERVING)
        house.runner.fails = False
        await house.health(SERVING)
        assert await house.generate("after") == expected

    with_verifier(tiny, scenario)


def test_a_dead_engine_thread_ends_the_verifier_and_its_calls_may_go_elsewhere(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, VerifierWorker)

        def fail(error: Exception) -> None:
            raise ZeroDivisionError("the handler's fault")

        house.worker._thread._on_fault = fail
        house.runner.fails = True
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await house.generate("met by the fault")
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ServiceFault, match="has ended"):
            await house.serving

    with_verifier(tiny, scenario)


def test_a_hung_speculator_turns_its_health_and_back(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, SpeculatorWorker)
        await house.health(SERVING)
        house.runner.hold.clear()
        house.worker.scheduler._post(lambda: bool(house.runner.hold.wait(DEADLINE_SECONDS)) and None)
        await house.health(NOT_SERVING)
        house.runner.hold.set()
        await house.health(SERVING)

    with_speculator(tiny, scenario)


def test_a_dead_engine_thread_ends_the_speculator(tiny: TinyModels) -> None:
    async def scenario(house: House) -> None:
        assert isinstance(house.worker, SpeculatorWorker)

        def fail(*ignored: object) -> None:
            raise ZeroDivisionError("the handler's fault")

        house.worker._thread._on_fault = fail
        house.worker._thread._step = fail
        with pytest.raises(ServiceFault, match="has ended"):
            await house.serving

    with_speculator(tiny, scenario)
