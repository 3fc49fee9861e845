"""One verifier of the pool: whether it can be used, how busy it is and what policy it keeps to, kept up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator

from gateway.verifiers.away import VerifierAway
from gateway.verifiers.client import VerifierClient
from gateway.verifiers.conduct import Conduct
from gateway.verifiers.pace import Pace
from saguaro.errors import SaguaroError, Unavailable
from saguaro.server import kept_up
from saguaro.types import GenerationEvent, GenerationStarted, KeptPolicy, TokenRun, TrafficPolicy, VerifierInfo

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
_LOAD_SECONDS = 0.5


class Visit:
    """A generation of ours there."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._is_decoding = False
        pace.took()

    def came(self, events: list[GenerationEvent]) -> None:
        """These came of it."""
        if isinstance(events[-1], GenerationStarted):
            return
        self._pace.came()
        if not self._is_decoding and isinstance(events[-1], TokenRun):
            self._is_decoding = True
            self._pace.began()

    def end(self) -> None:
        """It has ended there."""
        self._pace.left()
        if self._is_decoding:
            self._pace.ended()


class Member:
    """Usable while its health says SERVING and `judge` finds nothing against who it is.

    It is told the policy before it is used: every time that it begins to serve, it may be another. `judge` gives the
    reasons against a verifier, "" for none. `on_change` hears of every turn for better or worse.
    """

    def __init__(
        self,
        address: str,
        client: VerifierClient,
        *,
        judge: Callable[[Member, VerifierInfo], str],
        on_change: Callable[[Member], None],
    ) -> None:
        self.address = address
        self.client = client
        self.reason = f"{client.peer} was not reached yet"  # why it is not usable; "" while it is
        self.is_unfit = False  # it serves, but not what is wanted
        self.conduct = Conduct()
        self.pace = Pace()
        self.info: VerifierInfo | None = None  # as it was when it was usable last; None while it is unfit
        self._judge = judge
        self._on_change = on_change
        self._num_own = 0
        self._num_reported = self._num_own_when_reported = 0
        self._is_silent = False
        self._wanted: TrafficPolicy | None = None
        self._confirmed: TrafficPolicy | None = None  # what it keeps to, as far as is known
        self._reason_against_policy = "not told yet"
        self._telling = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look after it."""
        load = kept_up(self._keep_load, f"asking {self.client.peer} how busy it is")
        self._tasks = [self._watching(), load]

    async def close(self) -> None:
        """End the connection and all that uses it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.reason = f"{self.client.peer} is not used any more"
        await self.client.close()

    @property
    def is_usable(self) -> bool:
        """Whether generations may be sent there now."""
        return not self.reason

    @property
    def load(self) -> tuple[bool, int]:
        """For comparison, the least loaded first: whether it keeps silent when asked, and its sequences.

        These are what it last reported, everyone's, and since then the difference in our own.
        """
        return self._is_silent, max(self._num_reported + self._num_own - self._num_own_when_reported, self._num_own)

    @property
    def complaint(self) -> str:
        """Why it is not used, or is used last; "" for nothing."""
        return self.reason or (self.conduct.complaint and f"{self.client.peer} {self.conduct.complaint}")

    @contextlib.contextmanager
    def counted(self) -> Iterator[Visit]:
        """Around a generation of ours there."""
        visit, is_probe = Visit(self.pace), self.conduct.begun()
        self._num_own += 1
        try:
            yield visit
        finally:
            self._num_own -= 1
            visit.end()
            if is_probe:
                self.conduct.probed()

    @property
    def is_idle(self) -> bool:
        """Whether no generation of ours is there."""
        return self._num_own == 0

    @property
    def kept(self) -> KeptPolicy:
        """Whether it keeps to the policy that was applied last."""
        in_force = self.is_usable and self._wanted is not None and self._confirmed == self._wanted
        return KeptPolicy(self.address, in_force, "" if in_force else self.reason or self._reason_against_policy)

    async def apply(self, policy: TrafficPolicy) -> None:
        """Want this of it from now on; returns after one try, which has a second. Later tries need no call."""
        self._wanted = policy
        if self.is_usable:
            await self._tell_or_note()

    def eject(self, reason: str) -> None:
        """It failed: not used until its health, asked anew after a pause, says that it serves."""
        if not self.is_usable:
            return  # the watch knows already
        self._turn(reason)
        self._tasks[0].cancel()
        self._tasks[0] = self._watching(_FIRST_PAUSE_SECONDS)

    def abandon(self, reason: str) -> None:
        """It does not go on with what it has: all of it goes elsewhere, and nothing new comes for a while."""
        logger.warning("%s %s", self.client.peer, reason)
        self.conduct.put_out(reason)
        self.client.abandon(VerifierAway(Unavailable(f"{self.client.peer} {reason}"), is_refusal=True))

    def judge_anew(self) -> None:
        """What is wanted has changed."""
        if self.is_unfit:
            self._tasks[0].cancel()
            self._tasks[0] = self._watching()

    def _watching(self, pause: float = 0.0) -> asyncio.Task[None]:
        return kept_up(lambda: self._keep_watch(pause), f"watching {self.client.peer}")

    async def _keep_watch(self, pause: float) -> None:
        while True:
            # Jittered: the gateways of a verifier that restarts do not all dial at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            try:
                async with contextlib.aclosing(self.client.watch()) as changes:
                    async for is_serving in changes:
                        if is_serving:
                            await self._meet()
                            pause = 0.0
                        else:
                            self._turn(f"{self.client.peer} is starting or draining")
                self._turn(f"{self.client.peer} does not say any more whether it serves")
            except SaguaroError as error:
                self._turn(str(error), is_unfit=not isinstance(error, VerifierAway))
            except Exception as error:
                self._turn(f"{self.client.peer} cannot be watched: {error}")
                raise

    async def _meet(self) -> None:
        """It serves; who is it?"""
        info = await self.client.info()
        against = self._judge(self, info)
        if not against:
            self._confirmed = None  # whatever was confirmed last may have been another's word
            await self._tell()
        self.info = None if against else info
        self._turn(against, is_unfit=bool(against))

    async def _tell(self) -> None:
        """See that it keeps to the policy."""
        async with self._telling:  # one after another, so that an older policy never comes last
            while self._wanted is not None and self._confirmed != (wanted := self._wanted):
                await self.client.set_policy(wanted)
                self._confirmed, self._reason_against_policy = wanted, "a change is on its way"

    async def _tell_or_note(self) -> None:
        try:
            await self._tell()
        except Exception as error:  # the next try may do better
            if str(error) != self._reason_against_policy:
                known = isinstance(error, SaguaroError)
                logger.warning("the policy is not in force: %s", error, exc_info=None if known else error)
            self._reason_against_policy = str(error)

    def _turn(self, reason: str, *, is_unfit: bool = False) -> None:
        if reason == self.reason:
            return
        self.conduct.forgive()  # whoever turns is not who it was
        if reason:
            logger.log(logging.WARNING if self.is_usable or is_unfit else logging.INFO, "not used: %s", reason)
        else:
            logger.info("%s is used", self.client.peer)
        self.reason, self.is_unfit = reason, is_unfit
        self._on_change(self)

    async def _keep_load(self) -> None:
        while True:
            await asyncio.sleep(_LOAD_SECONDS)
            if self.is_usable:
                await self._tell_or_note()
                try:
                    self._num_reported = await self.client.num_sequences()
                    self._num_own_when_reported = self._num_own
                    self._is_silent = False
                except SaguaroError:
                    self._is_silent = True  # whether it is gone, the watch finds out
