"""A client that asks the same thing again and again, while others misbehave: its tokens and its gaps."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import grpc

from saguaro.types import TokenIds
from saguaro.v1 import common_pb2
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1.gateway_pb2_grpc import GatewayServiceStub

_TOKENS = 120
_BEAT_SECONDS = 0.005
_LONGEST_SECONDS = 60.0  # of one answer
_REQUEST = pb.GenerateRequest(
    text="The saguaro stands",
    max_tokens=_TOKENS,
    ignore_eos=True,
    sampling=common_pb2.SamplingParams(temperature=0.8, seed=11, acceptance=common_pb2.ACCEPTANCE_MODE_COUPLED),
)


class Bystander:
    """A context manager; it asks on a thread of its own. Gaps are from the request to the first message of its answer,
    and from one message to the next, in seconds.

    A second thread beats beside it: what it is late by is the machine's doing, and is taken off the gap it fell into.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._gaps: list[float] = []
        self._late: list[tuple[float, float]] = []  # when a beat came, and by how much it was late
        self.num_answers = 0
        self.faults: list[str] = []
        self.expected: TokenIds | None = None
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._ask_on, self._beat)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def take_gaps(self) -> list[float]:
        """Those since the last time, with the one that is open now."""
        with self._lock:
            count = len(self._gaps)
        deadline = time.monotonic() + _LONGEST_SECONDS
        while len(self._gaps) == count and not self.faults and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            gaps, self._gaps = self._gaps, []
        return gaps

    def await_answers(self, count: int, seconds: float = 60) -> None:
        """Until so many more have ended as they must, or a fault."""
        wanted, deadline = self.num_answers + count, time.monotonic() + seconds
        while self.num_answers < wanted and not self.faults:
            assert time.monotonic() < deadline, f"no answer within {seconds:g} s"
            time.sleep(0.01)

    def _ask_on(self) -> None:
        with grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = GatewayServiceStub(channel)
            while not self._stop.is_set():
                try:
                    tokens = self._ask(stub)
                except grpc.RpcError as error:
                    self.faults.append(repr(error))
                    return
                if self.expected is None and len(tokens) == _TOKENS:
                    self.expected = tokens
                if tokens != self.expected:
                    self.faults.append(f"other tokens: {tokens} in place of {self.expected}")
                    return
                self.num_answers += 1

    def _ask(self, stub: GatewayServiceStub) -> TokenIds:
        tokens: list[int] = []
        before = time.monotonic()
        for event in stub.Generate(_REQUEST, timeout=_LONGEST_SECONDS):
            now = time.monotonic()
            gap = now - before - self._machine_late(before, now)
            with self._lock:
                self._gaps.append(gap)
            before = now
            tokens += event.delta.token_ids
        return tuple(tokens)

    def _machine_late(self, start: float, end: float) -> float:
        return sum(late for at, late in self._late[-200:] if start <= at <= end)

    def _beat(self) -> None:
        due = time.monotonic() + _BEAT_SECONDS
        while not self._stop.is_set():
            time.sleep(max(due - time.monotonic(), 0.0))
            now = time.monotonic()
            if now - due > _BEAT_SECONDS:
                self._late.append((now, now - due))
                del self._late[:-1000]
            due = now + _BEAT_SECONDS
