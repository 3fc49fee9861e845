"""What a service must keep while it is fuzzed: its process, its memory, its descriptors, its KV blocks, its health."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from saguaro.cli.health import is_serving
from saguaro.cli.trio import Trio
from saguaro.v1 import speculator_pb2, verifier_pb2
from saguaro.v1.speculator_pb2_grpc import SpeculatorServiceStub
from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub

ROLES = ("gateway", "verifier", "speculator")
_MORE_DESCRIPTORS = 24


@dataclass(frozen=True)
class Vitals:
    """Of one service at one time."""

    pid: int
    megabytes: float  # resident
    descriptors: int


def vitals_of(trio: Trio) -> dict[str, Vitals]:
    """By role; AssertionError where a process has ended."""
    found = {}
    for role in ROLES:
        process = trio.processes[role]
        assert process.exit_code is None, f"the {role} ended with {process.describe_end()}\n{process.last_words}"
        status = Path(f"/proc/{process.pid}/status").read_text()
        kilobytes = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
        descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        found[role] = Vitals(process.pid, kilobytes / 1024, descriptors)
    return found


def growth(before: dict[str, Vitals], now: dict[str, Vitals], *, more_megabytes: float) -> list[str]:
    """What has grown beyond its bound, or been replaced, a sentence each."""
    faults = []
    for role in ROLES:
        old, new = before[role], now[role]
        if new.pid != old.pid:
            faults.append(f"the {role} is another process")
        if new.megabytes > old.megabytes + more_megabytes:
            faults.append(f"the {role} grew from {old.megabytes:.0f} to {new.megabytes:.0f} MB")
        if new.descriptors > old.descriptors + _MORE_DESCRIPTORS:
            faults.append(f"the {role} went from {old.descriptors} to {new.descriptors} descriptors")
    return faults


def left_over(trio: Trio) -> list[str]:
    """What of sequences and KV blocks is not given back, a sentence each."""
    with grpc.insecure_channel(trio.verifier_address) as channel:
        load = VerifierServiceStub(channel).GetLoad(verifier_pb2.GetLoadRequest(), timeout=10)
    with grpc.insecure_channel(trio.speculator_address) as channel:
        asked = speculator_pb2.GetSpeculatorInfoRequest()
        info = SpeculatorServiceStub(channel).GetSpeculatorInfo(asked, timeout=10)
    found = {
        "sequences that run": load.num_running,
        "sequences that wait": load.num_waiting,
        "KV blocks of the target": load.num_kv_blocks - load.free_kv_blocks,
        "sequences of the draft": info.num_sequences,
        "KV blocks of the draft": info.num_kv_blocks - info.free_kv_blocks,
    }
    return [f"{count} {what}" for what, count in found.items() if count]


def not_serving(trio: Trio) -> list[str]:
    """Roles whose health is not SERVING."""
    return [role for role in ROLES if not is_serving(trio.address(role))]
