"""Minutes of random faults under the real planner: every answer is the undisturbed one, and nothing is left behind.

Two verifiers with few KV blocks, so that sequences are preempted all the time; the wire to the speculator is cut and
held. Processes are killed and stopped, clients leave. `CHAOS_SECONDS` says how long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from saguaro.channel import channel_options, open_channel
from saguaro.cli.trio import Ports, Trio
from saguaro.client import Answer, AsyncClient
from saguaro.v1 import speculator_pb2, verifier_pb2
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.speculating import await_speculation
from tests.integration.waiting import until
from tests.wire import Wire, wire_to

SECONDS = float(os.environ.get("CHAOS_SECONDS", "300"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
REPETITIVE = list(range(97, 105)) * 8  # n-grams serve where the draft model is away
PLAIN = list(range(65, 91))
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
}

OFTEN = ["--keepalive-seconds", "1"]
PROFILE = """
vocabulary = 600
context_limit = 1024
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 15
[draft]
base_ms = 0.5
"""

# Their tokens are a function of the request alone.
EXACT: list[tuple[list[int], dict[str, Any]]] = [
    (PLAIN, {"max_tokens": 240, "ignore_eos": True}),
    (REPETITIVE, {"max_tokens": 300, "ignore_eos": True}),
    (REPETITIVE, {"max_tokens": 200, "ignore_eos": True, "logit_bias": dict.fromkeys(range(97, 105), 6.0)}),
    (PLAIN, {"max_tokens": 240, "ignore_eos": True, "temperature": 0.8, "seed": 5}),
    (REPETITIVE, {"max_tokens": 160, "ignore_eos": True, "temperature": 1.0, "seed": 6, "n": 2}),
    (PLAIN, {"max_tokens": 160, "ignore_eos": True, "temperature": 0.9, "seed": 7, "repetition_penalty": 1.2}),
    (PLAIN, {"max_tokens": 120, "temperature": 0.7, "seed": 8, "json_schema": SCHEMA}),
    (PLAIN, {"max_tokens": 150, "temperature": 1.0, "seed": 9, "regex": "([a-z]+ ){12}[0-9]{20}"}),
    (PLAIN, {"max_tokens": 200, "ignore_eos": True, "acceptance": "rejection"}),  # greedy: the modes are one
]
# Their law is the target's, and their tokens depend on timing.
DRAWN: list[tuple[list[int], dict[str, Any]]] = [
    (PLAIN, {"max_tokens": 200, "ignore_eos": True, "temperature": 0.8, "seed": 1, "acceptance": "rejection"}),
    (REPETITIVE, {"max_tokens": 200, "ignore_eos": True, "temperature": 1.3, "seed": 2, "acceptance": "rejection"}),
    (
        PLAIN,
        {"max_tokens": 160, "ignore_eos": True, "temperature": 0.8, "seed": 3}
        | {"acceptance": "rejection", "cached_scale": 0.5},
    ),
]
# A sequence is given up for good only where a peer broke the contract, and here none does.
BROKEN_CONTRACT = re.compile(r"quarantined|malformed|Traceback|diverged", re.IGNORECASE)


class Faults:
    """What befalls the trio, one fault at a time, and how often each did."""

    def __init__(self, trio: Trio, wire: Wire, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._trio = trio
        self._wire = wire
        self._chance = chance
        self._all: list[Callable[[], Awaitable[None]]] = [
            self._kill_speculator,
            self._stop_speculator,
            self._kill_verifier,
            self._stop_verifier,
            self._cut_wire,
            self._hold_wire,
        ]

    async def strike(self) -> None:
        fault = self._chance.choice(self._all)
        self.counts[fault.__name__.strip("_")] += 1
        await fault()

    async def _kill_speculator(self) -> None:
        await self._kill("speculator")

    async def _kill_verifier(self) -> None:
        await self._kill(self._chance.choice(list(self._trio.ports.verifiers)))

    async def _kill(self, name: str) -> None:
        await asyncio.to_thread(self._trio.end, name, signal.SIGKILL)
        await asyncio.sleep(self._chance.uniform(0, 2))
        self._trio.start(name)
        await asyncio.to_thread(self._trio.wait_until_serving)

    async def _stop_speculator(self) -> None:
        await self._stop("speculator", self._chance.choice([0.05, 0.5, 3.0]))

    async def _stop_verifier(self) -> None:
        await self._stop(self._chance.choice(list(self._trio.ports.verifiers)), self._chance.choice([0.05, 0.5, 2.0]))

    async def _stop(self, name: str, seconds: float) -> None:
        pid = self._trio.processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _cut_wire(self) -> None:
        self._wire.cut()

    async def _hold_wire(self) -> None:
        self._wire.hold()
        await asyncio.sleep(self._chance.choice([0.02, 0.2, 2.0]))
        self._wire.release()


async def answers_to(client: AsyncClient, prompt: list[int], options: dict[str, Any]) -> tuple[Answer, ...]:
    stream = client.generate(prompt, **options)
    async for _ in stream:
        pass
    return stream.results


def told(answers: tuple[Answer, ...]) -> list[object]:
    """What may not depend on faults."""
    return [(answer.token_ids, answer.text, answer.finish_reason) for answer in answers]


class Load:
    """Streams that ask again and again, and clients that leave in the midst."""

    def __init__(self, client: AsyncClient, chance: random.Random) -> None:
        self.num_answers = self.num_tokens = self.num_left = self.num_accepted = 0
        self._client = client
        self._chance = chance
        self._is_over = False
        self._expected: list[list[object]] = []

    async def learn(self) -> None:
        """What all say undisturbed, one after another and without speculation."""
        for prompt, options in EXACT:
            self._expected.append(told(await answers_to(self._client, prompt, options | {"speculation": False})))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(len(EXACT)):
                group.create_task(self._exact(index))
            for prompt, options in DRAWN:
                group.create_task(self._drawn(prompt, options))
            group.create_task(self._leaving())

    def end(self) -> None:
        """Let every answer come to its end and ask no more."""
        self._is_over = True

    async def _exact(self, index: int) -> None:
        prompt, options = EXACT[index]
        while not self._is_over:
            answers = await answers_to(self._client, prompt, options)
            assert told(answers) == self._expected[index], options
            self._count(answers)

    async def _drawn(self, prompt: list[int], options: dict[str, Any]) -> None:
        while not self._is_over:
            answers = await answers_to(self._client, prompt, options)
            assert [answer.num_generated_tokens for answer in answers] == [options["max_tokens"]]
            self._count(answers)

    async def _leaving(self) -> None:
        while not self._is_over:
            prompt, options = self._chance.choice(EXACT + DRAWN)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0.01, 1.0)):
                    await answers_to(self._client, prompt, options)
            self.num_left += 1

    def _count(self, answers: tuple[Answer, ...]) -> None:
        self.num_answers += len(answers)
        self.num_tokens += sum(answer.num_generated_tokens for answer in answers)
        self.num_accepted += sum(answer.speculation.num_accepted_tokens for answer in answers)


def is_free(trio: Trio) -> bool:
    """No sequence anywhere, and every KV block of each model free."""
    options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    for name in trio.ports.verifiers:
        with open_channel(trio.address(name), None, options) as channel:
            load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=5)
        if load.num_running or load.num_waiting or load.free_kv_blocks != load.num_kv_blocks:
            return False
    return is_speculator_free(trio)


def is_speculator_free(trio: Trio) -> bool:
    options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    with open_channel(trio.speculator_address, None, options) as channel:
        asked = speculator_pb2.GetSpeculatorInfoRequest()
        info = SpeculatorServiceStub(channel).GetSpeculatorInfo(asked, timeout=5)
    return bool(info.num_sequences == 0 and info.free_kv_blocks == info.num_kv_blocks)


async def preemptions(trio: Trio) -> int:
    count = 0
    for name in trio.ports.verifiers:
        async with grpc.aio.insecure_channel(trio.address(name)) as channel:
            count += (
                await VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=10)
            ).num_preemptions
    return count


async def scenario(trio: Trio, wire: Wire) -> None:
    chance = random.Random(SEED)
    faults = Faults(trio, wire, chance)
    async with AsyncClient(trio.gateway_address) as client:
        load = Load(client, random.Random(SEED + 1))
        await load.learn()
        running = asyncio.create_task(load.run())
        ends_at = time.monotonic() + SECONDS
        num_preempted = 0
        while time.monotonic() < ends_at and not running.done():
            await asyncio.sleep(chance.uniform(0, 2))
            await faults.strike()
            with contextlib.suppress(grpc.aio.AioRpcError):
                num_preempted = max(num_preempted, await preemptions(trio))
        load.end()
        await asyncio.wait_for(running, 120)
    await asyncio.sleep(1)
    left = not is_speculator_free(trio)
    print(
        f"{load.num_answers} answers, {load.num_tokens} tokens ({load.num_accepted} drafted and accepted), "
        f"{load.num_left} clients left, at least {num_preempted} preemptions; faults: {dict(faults.counts)}"
    )
    assert not left, "sequences are left at the speculator a second after the last answer"
    assert load.num_answers > 0
    assert load.num_accepted > 0


def real_pair(target: Path, draft: Path) -> dict[str, Any]:
    # Random weights do not survive int8: the draft would never agree.
    return {"target": str(target), "draft": str(draft), "speculator_flags": ["--linear", "stock"]}


def emulated_pair(folder: Path) -> dict[str, Any]:
    """A target slow enough that speculation pays, so that everything that belongs to it is in use."""
    profile = folder / "chaos.toml"
    profile.write_text(PROFILE)
    return {"emulate": str(profile)}


@pytest.mark.slow
@pytest.mark.timeout(int(SECONDS) + 400)
@pytest.mark.parametrize("kind", ["real", "emulated"])
def test_minutes_of_random_faults_change_no_token_and_leave_nothing_behind(
    kind: str, tiny_target: Path, tiny_draft: Path, tmp_path: Path
) -> None:
    pair = real_pair(tiny_target, tiny_draft) if kind == "real" else emulated_pair(tmp_path)
    # Bits must not depend on what is computed beside a stream, or rounding would be taken for a fault.
    exact = ["--numerics", "fixed-shape"] if kind == "real" else []
    ports = Ports.free(num_verifiers=2)
    with wire_to(f"127.0.0.1:{ports.speculator}") as wire:
        verifier = ["--reconnect-seconds", "0.2", "--speculator", wire.address, "--kv-tokens", "2048", *OFTEN]
        pair["speculator_flags"] = [*pair.get("speculator_flags", []), "--kv-tokens", "6144"]
        with Trio(
            ports=ports,
            verifier_flags=[*verifier, *exact],
            gateway_flags=["--failover-seconds", "120", *OFTEN],
            log_folder=tmp_path,
            **pair,
        ) as trio:
            await_speculation(trio)
            asyncio.run(scenario(trio, wire))
            until(lambda: is_free(trio), seconds=10)
    for log in sorted(tmp_path.glob("*.log")):
        bad = [line for line in log.read_text().splitlines() if BROKEN_CONTRACT.search(line)]
        assert not bad, f"{log.name}: {bad[:5]}"
