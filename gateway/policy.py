"""The deployment's policy: what the gateway wants of its verifiers, read and changed at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from saguaro.types import ClassPolicy, KeptPolicy, PolicyReport, TrafficClass, TrafficPolicy
from saguaro.validation import validate_policies

logger = logging.getLogger(__name__)


class Keepers(Protocol):
    """Who keeps to the policy: one verifier, or all of a pool, those included that join later."""

    async def apply(self, policy: TrafficPolicy) -> Sequence[KeptPolicy]:
        """Keep to it from now on; returns within a second, whether all could be told or not."""

    @property
    def kept(self) -> Sequence[KeptPolicy]:
        """Who keeps to what was applied last."""


class PolicyDesk:
    """Changes live as long as the process: a restart begins with the settings again."""

    def __init__(self, start: TrafficPolicy, keepers: Keepers) -> None:
        self._policy = start
        self._keepers = keepers
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Put the policy of the settings in force."""
        await self._keepers.apply(self._policy)

    @property
    def report(self) -> PolicyReport:
        """What is wanted, and who keeps to it."""
        return PolicyReport(self._policy, tuple(self._keepers.kept))

    async def change(self, changes: Mapping[TrafficClass, ClassPolicy]) -> PolicyReport:
        """Replace the policies of these classes. Raises InvalidRequest, and changes nothing, for bad bounds."""
        validate_policies(changes)
        async with self._changing:
            self._policy = self._policy.changed(dict(changes))
            logger.info("the policy is now %s", self._policy)
            await self._keepers.apply(self._policy)
            return self.report
