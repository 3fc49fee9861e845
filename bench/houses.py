"""The services that a plan needs, started together and kept until its end.

One verifier serves plain decoding, SD, SSD and fixed settings in turn: it is told the policy before each. Only what
differs in cores or in its way to the speculator has one of its own. One speculator serves all verifiers: only one of
them works at a time, and an idle one costs nothing but memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import grpc

from bench.plan import PLAIN, PLAIN_ALL_CORES, SD, SSD, BenchPlan, ssd_at
from saguaro.channel import channel_options
from saguaro.cli.placement import place
from saguaro.cli.service_process import OnProgress
from saguaro.cli.trio import ServiceDied, Trio
from saguaro.client import Client
from saguaro.client.requests import GenerateOptions
from saguaro.v1 import verifier_pb2 as pb
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub
from saguaro.wire.status import error_of

_ATTACH_SECONDS = 60.0
_POLICY_SECONDS = 10.0
_AUTO = "auto"


class VerifierPolicy:
    """The policy of one verifier, told over its own port; a context manager that closes the connection."""

    def __init__(self, address: str) -> None:
        self._peer = f"the verifier at {address}"
        self._channel = grpc.insecure_channel(address, options=channel_options())
        self._stub = VerifierServiceStub(self._channel)
        self._in_force = _AUTO

    def __enter__(self) -> VerifierPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def follow(self, policy: str) -> None:
        """Return when it is in force. Raises from the error tree where the verifier refuses it."""
        if policy == self._in_force:
            return
        try:
            self._stub.SetPolicy(pb.SetPolicyRequest(policy=policy), timeout=_POLICY_SECONDS)
        except grpc.RpcError as error:
            raise error_of(error, self._peer) from None
        self._in_force = policy


@dataclass(frozen=True, slots=True)
class House:
    """A gateway to ask, its verifier's policy meanwhile, what requests say beside, and how many cores work for it."""

    client: Client
    verifier: VerifierPolicy
    num_cores: int
    policy: str = _AUTO
    options: GenerateOptions = field(default_factory=GenerateOptions)


@contextmanager
def running_houses(plan: BenchPlan, on_progress: OnProgress) -> Iterator[Mapping[str, House]]:
    """By mode name, serving and speculated; ended with the block. Raises ServiceDied where one does not come up."""
    main = Trio(
        target=plan.target,
        draft=plan.draft,
        emulate=plan.emulate,
        verifier_flags=_reach(plan),
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
        doors = {
            mode: (
                stack.enter_context(Client(trio.gateway_address)),
                stack.enter_context(VerifierPolicy(trio.verifier_address)),
            )
            for mode, trio in trios.items()
        }
        for mode, (client, _) in doors.items():
            if mode != PLAIN_ALL_CORES:
                _wait_until_speculated(mode, client)
        yield _houses(plan, doors)


def _reach(plan: BenchPlan) -> tuple[str, ...]:
    # Requests that name their C do not notice that it is tuned for the others.
    tuned = any(setting.cached_scale == "auto" for setting in plan.acceptances)
    flags = ("--lookahead", str(plan.most_lookahead), "--budget", str(plan.most_budget))
    return (*flags, "--cached-scale", "auto") if tuned else flags


def _further(plan: BenchPlan) -> dict[str, tuple[str, ...]]:
    """Flags of the verifiers beside the first."""
    further: dict[str, tuple[str, ...]] = {}
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
                further[ssd_at(rtt)] = (*_reach(plan), "--link-delay-ms", f"{rtt / 2:g}")
    return further


def _houses(plan: BenchPlan, doors: Mapping[str, tuple[Client, VerifierPolicy]]) -> dict[str, House]:
    cores = sorted(os.sched_getaffinity(0))
    placement = place("auto", cores)
    verifier, both = placement.verifier.threads, placement.verifier.threads + placement.speculator.threads
    houses = {mode: House(*door, both) for mode, door in doors.items()}
    main = doors[SSD]
    unspeculated: GenerateOptions = {"speculation": False}
    houses[PLAIN] = House(*main, verifier, options=unspeculated)
    # Nothing is guessed, so every round is drafted just in time: draft and target in turn.
    houses[SD] = House(*main, both, policy=f"fixed:{plan.sd_lookahead},0,inf")
    for setting in plan.sweep:
        houses[setting.policy] = House(*main, both, policy=setting.policy)
    if PLAIN_ALL_CORES in doors:
        houses[PLAIN_ALL_CORES] = House(*doors[PLAIN_ALL_CORES], len(cores), options=unspeculated)
    for by in plan.acceptances:
        houses[by.mode] = House(*main, both, options=by.options)
    return {mode: houses[mode] for mode in plan.mode_names if mode not in plan.peer_modes}


def _wait_until_speculated(mode: str, client: Client) -> None:
    deadline = time.monotonic() + _ATTACH_SECONDS
    while not (served := client.list_models(timeout_seconds=_ATTACH_SECONDS)[0]).speculating:
        if time.monotonic() > deadline:
            raise ServiceDied(f"the verifier of {mode} found no speculator: {served.not_speculating_reason}")
        time.sleep(0.05)


def _stop(start: Future[Trio], trio: Trio) -> None:
    """Also in mid-start, which then fails: whoever interrupts a bench does not wait for models to load."""
    trio.stop()
    start.exception()
