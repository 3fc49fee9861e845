"""The services that a plan needs, started together and kept until its end.

One speculator serves all verifiers: only one of them works at a time, and an idle one costs nothing but memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.plan import PLAIN, PLAIN_ALL_CORES, SD, SSD, BenchPlan, ssd_at
from saguaro.cli.placement import place
from saguaro.cli.service_process import OnProgress
from saguaro.cli.trio import ServiceDied, Trio
from saguaro.client import Client

_ATTACH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class House:
    """A gateway to ask, whether to let it speculate, and how many cores work for the answer."""

    client: Client
    speculation: bool
    num_cores: int


@contextmanager
def running_houses(plan: BenchPlan, on_progress: OnProgress) -> Iterator[Mapping[str, House]]:
    """By mode name, serving and speculated; ended with the block. Raises ServiceDied where one does not come up."""
    main = Trio(
        target=plan.target,
        draft=plan.draft,
        emulate=plan.emulate,
        verifier_flags=("--lookahead", str(plan.lookahead), "--budget", str(plan.budget)),
        on_progress=on_progress,
    )
    trios = {SSD: main}
    for mode, flags in _further(plan).items():
        trios[mode] = Trio(
            target=plan.target,
            draft=None,
            emulate=plan.emulate,
            verifier_flags=("--speculator", main.speculator_address, *flags),
            on_progress=on_progress,
        )
    # The threads of this pool outlive the services, as the kernel's tie between them demands.
    with ThreadPoolExecutor(len(trios)) as pool, ExitStack() as stack:
        starts = [pool.submit(trio.__enter__) for trio in trios.values()]
        for start, trio in zip(starts, trios.values(), strict=True):
            stack.callback(_stop, start, trio)
        for start in starts:
            start.result()
        clients = {mode: stack.enter_context(Client(trio.gateway_address)) for mode, trio in trios.items()}
        for mode, client in clients.items():
            if mode != PLAIN_ALL_CORES:
                _wait_until_speculated(mode, client)
        yield _houses(plan, clients)


def _further(plan: BenchPlan) -> dict[str, tuple[str, ...]]:
    """Flags of the verifiers beside the first, which serves `ssd` and, without speculation, `plain`."""
    further: dict[str, tuple[str, ...]] = {}
    lookahead = ("--lookahead", str(plan.lookahead))
    if SD in plan.modes:
        # Nothing is guessed, so every round is drafted just in time: draft and target in turn.
        further[SD] = ("--policy", f"fixed:{plan.lookahead},0,inf")
    if PLAIN_ALL_CORES in plan.modes:
        cores = sorted(os.sched_getaffinity(0))
        further[PLAIN_ALL_CORES] = (
            *("--lookahead", "0"),
            *("--cores", ",".join(map(str, cores)), "--threads", str(len(cores))),
        )
    if SSD in plan.modes:
        for rtt in plan.rtts_ms:
            if rtt > 0:
                # The link delays both ways, each by half of the round trip.
                further[ssd_at(rtt)] = (*lookahead, "--budget", str(plan.budget), "--link-delay-ms", f"{rtt / 2:g}")
    return further


def _houses(plan: BenchPlan, clients: Mapping[str, Client]) -> dict[str, House]:
    cores = sorted(os.sched_getaffinity(0))
    placement = place("auto", cores)
    verifier, both = placement.verifier.threads, placement.verifier.threads + placement.speculator.threads
    houses = {mode: House(client, mode != PLAIN_ALL_CORES, both) for mode, client in clients.items()}
    houses[PLAIN] = House(clients[SSD], False, verifier)
    if PLAIN_ALL_CORES in houses:
        houses[PLAIN_ALL_CORES] = House(clients[PLAIN_ALL_CORES], False, len(cores))
    return {mode: houses[mode] for mode in plan.mode_names if mode not in plan.peer_modes}


def _wait_until_speculated(mode: str, client: Client) -> None:
    deadline = time.monotonic() + _ATTACH_SECONDS
    while not (served := client.list_models(timeout_seconds=_ATTACH_SECONDS)[0]).speculating:
        if time.monotonic() > deadline:
            raise ServiceDied(f"the verifier of {mode} found no speculator: {served.not_speculating_reason}")
        time.sleep(0.05)


def _stop(start: Future[Trio], trio: Trio) -> None:
    """Once its start is over, well or not; a trio that failed to start has ended its services itself."""
    if start.exception() is None:
        trio.stop()
