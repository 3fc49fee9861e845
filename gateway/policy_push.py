"""Keeps one verifier to the policy that the gateway wants: told at each change, and whenever the verifier joins."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from saguaro.types import KeptPolicy, TrafficPolicy
from saguaro.v1 import verifier_pb2
from saguaro.wire.policy import traffic_policy_to_proto
from saguaro.wire.status import error_of

logger = logging.getLogger(__name__)

_PUSH_TIMEOUT_SECONDS = 1.0
_RETRY_SECONDS = 0.2
_SERVICE = verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name


class PolicyPush:
    """One verifier's, on its own channel. A restarted verifier knows no policy, so its health is watched for joins."""

    def __init__(self, channel: Any, stub: Any, address: str) -> None:
        self._health = health_pb2_grpc.HealthStub(channel)
        self._stub = stub
        self._address = address
        self._wanted: TrafficPolicy | None = None
        self._confirmed: TrafficPolicy | None = None
        self._reason = "not told yet"
        self._due = asyncio.Event()
        self._pushing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def kept(self) -> KeptPolicy:
        """Whether the verifier keeps to what is wanted, as far as is known."""
        in_force = self._wanted is not None and self._confirmed == self._wanted
        return KeptPolicy(self._address, in_force, "" if in_force else self._reason)

    async def apply(self, policy: TrafficPolicy) -> KeptPolicy:
        """Want this from now on; returns after one try, within a second. Later tries need no call."""
        self._wanted = policy
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._follow_health()), asyncio.create_task(self._retry())]
        if not await self._push():
            self._due.set()
        return self.kept

    async def close(self) -> None:
        """Stop pushing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _push(self) -> bool:
        async with self._pushing:  # one after another, so that an older policy never comes last
            wanted = self._wanted
            assert wanted is not None, "apply() comes first"
            request = verifier_pb2.SetPolicyRequest(classes=traffic_policy_to_proto(wanted))
            try:
                await self._stub.SetPolicy(request, timeout=_PUSH_TIMEOUT_SECONDS)
            except grpc.aio.AioRpcError as error:
                self._lost(str(error_of(error, f"the verifier at {self._address}")))
                return False
            self._confirmed, self._reason = wanted, "a change is on its way"
            return True

    def _lost(self, reason: str) -> None:
        if reason != self._reason:
            logger.warning("the policy is not in force: %s", reason)
        self._confirmed, self._reason = None, reason

    async def _retry(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if not await self._push():
                await asyncio.sleep(_RETRY_SECONDS)
                self._due.set()

    async def _follow_health(self) -> None:
        """Every time that the verifier begins to serve, it may be another."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                watch = self._health.Watch(health_pb2.HealthCheckRequest(service=_SERVICE), wait_for_ready=True)
                async for answer in watch:
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        self._due.set()
            self._lost(f"the verifier at {self._address} cannot be reached")
            await asyncio.sleep(_RETRY_SECONDS)
