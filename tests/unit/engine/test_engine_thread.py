"""The thread goes on after faults, waits for a model that fails, and does not die unseen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from saguaro.engine.engine_health import keep_engine_ready
from saguaro.engine.engine_thread import EngineThread
from saguaro.engine.step_watch import StepWatch
from saguaro.errors import ServiceFault, Unavailable

DEADLINE_SECONDS = 10.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


class Engine:
    """Steps that fail, hang or do nothing, as the test says."""

    def __init__(self) -> None:
        self.breaks = self.probe_breaks = self.handler_breaks = False
        self.hold = threading.Event()
        self.hold.set()
        self.num_steps = 0
        self.faults: list[Exception] = []
        self.thread = EngineThread("engine", self.step, self.on_fault, probe=self.probe, watch=StepWatch(0.2))

    def step(self) -> float:
        self.hold.wait()
        if self.breaks:
            raise RuntimeError("a test's fault")
        self.num_steps += 1
        return 0.005

    def probe(self) -> None:
        if self.probe_breaks:
            raise RuntimeError("CUDA error: the test's")

    def on_fault(self, error: Exception) -> None:
        self.faults.append(error)
        if self.handler_breaks:
            raise ZeroDivisionError("the handler's fault")

    def goes_on(self) -> bool:
        before = self.num_steps
        wait_until(lambda: self.num_steps > before)
        return True


@contextmanager
def started() -> Iterator[Engine]:
    engine = Engine()
    engine.thread.start()
    try:
        yield engine
    finally:
        engine.hold.set()
        engine.thread.stop()


def test_a_fault_of_a_step_is_handed_on_and_the_thread_goes_on() -> None:
    with started() as engine:
        engine.breaks = True
        wait_until(lambda: bool(engine.faults))
        engine.breaks = False
        assert engine.goes_on()
        assert engine.thread.trouble is None
        assert all(isinstance(fault, RuntimeError) for fault in engine.faults)


def test_while_the_model_fails_no_step_is_made_and_whoever_comes_is_told() -> None:
    with started() as engine:
        engine.probe_breaks = engine.breaks = True
        wait_until(lambda: engine.thread.trouble is not None)
        engine.breaks = False  # what a step would do is not asked as long as the probe fails
        num_steps, num_told = engine.num_steps, len(engine.faults)
        engine.thread.wake()
        wait_until(lambda: len(engine.faults) > num_told)
        assert engine.num_steps == num_steps
        assert all(isinstance(fault, Unavailable) for fault in engine.faults)
        trouble = engine.thread.trouble
        assert trouble is not None
        assert "forwards fail" in trouble[0]
        engine.probe_breaks = False
        engine.thread.wake()
        assert engine.goes_on()
        assert engine.thread.trouble is None


def test_a_thread_whose_fault_handler_fails_says_that_it_ended() -> None:
    with started() as engine:
        engine.handler_breaks = engine.breaks = True
        wait_until(lambda: engine.thread.fault is not None)
        trouble = engine.thread.trouble
        assert trouble is not None
        assert "has ended: ZeroDivisionError" in trouble[0]


def test_a_hung_step_is_trouble_until_it_ends() -> None:
    with started() as engine:
        engine.thread._watch.end_forward(1, engine.thread._watch.begin_forward(1))  # what is usual is known
        engine.hold.clear()
        wait_until(lambda: engine.thread.trouble is not None)
        engine.hold.set()
        wait_until(lambda: engine.thread.trouble is None)
        assert engine.goes_on()


def test_health_follows_the_engine_and_a_dead_one_ends_the_service() -> None:
    said: list[bool] = []

    async def say(is_ready: bool) -> None:
        said.append(is_ready)

    async def scenario(engine: Engine) -> None:
        keeping = asyncio.create_task(keep_engine_ready(engine.thread, say))
        engine.probe_breaks = engine.breaks = True
        await asyncio.wait_for(until(lambda: said == [False]), DEADLINE_SECONDS)
        engine.probe_breaks = engine.breaks = False
        await asyncio.wait_for(until(lambda: said == [False, True]), DEADLINE_SECONDS)
        engine.handler_breaks = engine.breaks = True
        with pytest.raises(ServiceFault, match="has ended"):
            await asyncio.wait_for(keeping, DEADLINE_SECONDS)
        assert said == [False, True, False]

    with started() as engine:
        asyncio.run(scenario(engine))


def test_an_engine_that_stays_in_trouble_ends_the_service() -> None:
    async def say(is_ready: bool) -> None:
        pass

    async def scenario(engine: Engine) -> None:
        engine.probe_breaks = engine.breaks = True
        with pytest.raises(ServiceFault, match="forwards fail; the process ends"):
            await asyncio.wait_for(keep_engine_ready(engine.thread, say, give_up_seconds=0.5), DEADLINE_SECONDS)

    with started() as engine:
        asyncio.run(scenario(engine))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # what it waits for happens on another thread
        await asyncio.sleep(0.005)
