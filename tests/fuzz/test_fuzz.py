"""Hostile frames and requests at every port, while a bystander is answered: nothing dies, grows, leaks or holds it up.

A failure names the seed of its chunk: `python -m tests.fuzz.sender ROLE ADDRESS`, then the seed and the number of
frames on stdin, sends that chunk again.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from saguaro.cli.trio import Trio
from tests.fuzz.bystander import Bystander
from tests.fuzz.vitals import growth, left_over, not_serving, vitals_of
from tests.integration.source_copy import ROOT
from tests.integration.speculating import await_speculation
from tests.integration.waiting import until

SEED = 20_261_201
_WARM_SHARE, _REPEATED_SHARE = 0.1, 0.2  # of the chunks, before memory is measured, and to see whether it still grows
_MORE_GAP_SECONDS = 0.1
_TRIES = 3  # of a chunk with a long gap: what is the chunk's doing comes again
PROFILE = """
vocabulary = 600
context_limit = 2048
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = 3
[draft]
base_ms = 0.3
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def trio(logs: Path) -> Iterator[Trio]:
    profile = logs / "fuzz.toml"
    profile.write_text(PROFILE)
    bounds = ["--max-sessions", "64", "--session-ttl-seconds", "5"]
    # malloc keeps for each thread the largest that it ever held; with one arena for all, what grows is held by us.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MALLOC_ARENA_MAX", "1")
        with Trio(emulate=str(profile), gateway_flags=bounds, log_folder=logs) as running:
            await_speculation(running)
            yield running


class Sender:
    """A process that sends one chunk after another."""

    def __init__(self, module: str, *where: str) -> None:
        command = [sys.executable, "-m", f"tests.fuzz.{module}", *where]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, seed: int, count: int) -> collections.Counter[str]:
        """How the calls ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed} {count}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the sender ended in the chunk of seed {seed}"
        return collections.Counter(json.loads(line))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


@contextmanager
def sending(trio: Trio, door: str) -> Iterator[Sender]:
    url = urlsplit(trio.http_url)
    sender = (
        Sender("http_sender", str(url.hostname), str(url.port))
        if door == "http"
        else Sender("sender", door, trio.address(door))
    )
    try:
        yield sender
    finally:
        sender.close()


def longest_gap(bystander: Bystander, sender: Sender, seed: int, count: int) -> tuple[float, collections.Counter[str]]:
    """Of the bystander while the chunk is sent, in seconds; and how the chunk's calls ended."""
    bystander.take_gaps()
    ends = sender.send(seed, count)
    return max(bystander.take_gaps(), default=0.0), ends


def steps_failed(logs: Path) -> set[tuple[str, str]]:
    """By role, lines that say when a step of the engine failed: it took other sequences with it."""
    return {
        (role, line)
        for role in ("verifier", "speculator")
        for line in (logs / f"{role}.log").read_text().splitlines()
        if "a step failed" in line
    }


def _is_ours(end: str) -> bool:
    """Whether a call ended as if the service were at fault, or not at all."""
    what, _, status = end.rpartition(" ")
    if status in ("UNKNOWN", "INTERNAL"):
        return not what.endswith("no message")  # these are what gRPC says of bytes that it cannot read
    return status in ("HANGS", "500")


def fuzzed(trio: Trio, door: str, num_chunks: int, chunk: int) -> None:
    """The whole claim for one port."""
    ends: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    with sending(trio, door) as sender, Bystander(trio.gateway_address) as bystander:
        bystander.await_answers(10)
        normal, longest, began = max(bystander.take_gaps()), 0.0, time.monotonic()
        before = vitals_of(trio)
        for number in range(num_chunks):
            if number == int(num_chunks * _WARM_SHARE):
                before = vitals_of(trio)
            seed = SEED * 1000 + number
            gaps: list[float] = []
            while len(gaps) < _TRIES and (not gaps or gaps[-1] >= normal + _MORE_GAP_SECONDS):
                gap, ended = longest_gap(bystander, sender, seed, chunk)
                ends += ended
                gaps.append(gap)
            longest = max(longest, min(gaps))
            if gaps[-1] >= normal + _MORE_GAP_SECONDS:
                faults.append(f"chunk {seed} {chunk}: gaps of {gaps} s, undisturbed {normal:.3f} s at most")
            vitals_of(trio)
            assert not bystander.faults, [f"chunk {seed} {chunk}", *bystander.faults]
        seconds = time.monotonic() - began
        peak = vitals_of(trio)
        # The same again: the largest of these frames have been held before, so what grows now is kept for ever.
        for number in range(int(num_chunks * _REPEATED_SHARE)):
            ends += sender.send(SEED * 1000 + number, chunk)
        bystander.await_answers(1)
        assert not bystander.faults, bystander.faults
    until(lambda: not left_over(trio), 60)
    after = vitals_of(trio)
    faults += growth(before, after, more_megabytes=256) + growth(peak, after, more_megabytes=24)
    faults += [f"the {role} is not serving" for role in not_serving(trio)]
    faults += [f"{count} times {end}" for end, count in ends.items() if _is_ours(end)]
    print(
        f"{door}: {num_chunks * chunk} frames in {seconds:.0f} s, {num_chunks * chunk / seconds:.0f} a second; "
        f"{bystander.num_answers} answers beside; gaps {normal * 1e3:.0f} ms undisturbed, {longest * 1e3:.0f} ms fuzzed"
    )
    print(ends, before, peak, after, sep="\n")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("door", ["gateway", "verifier", "speculator", "http"])
def test_a_few_hostile_frames_hurt_nobody(trio: Trio, door: str) -> None:
    fuzzed(trio, door, num_chunks=2, chunk=100 if door == "http" else 300)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("door", ["gateway", "verifier", "speculator"])
def test_a_hundred_thousand_hostile_frames_hurt_nobody(trio: Trio, logs: Path, door: str) -> None:
    failed_before = steps_failed(logs)
    fuzzed(trio, door, num_chunks=100, chunk=1000)
    assert steps_failed(logs) == failed_before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_hostile_requests_hurt_nobody(trio: Trio) -> None:
    fuzzed(trio, "http", num_chunks=50, chunk=200)
