"""All verifiers of this gateway: which can be used, and which one takes the next generation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import fields

from gateway.verifiers.addresses import are_fixed, parse_addresses, resolve
from gateway.verifiers.client import VerifierClient
from gateway.verifiers.member import Member
from gateway.verifiers.prefixes import PrefixMap
from saguaro.channel import Tls
from saguaro.errors import Incompatible, SaguaroError, Unavailable
from saguaro.server import kept_up
from saguaro.types import KeptPolicy, ModelIdentity, TrafficPolicy, VerifierInfo

# A verifier that has a prompt's beginning gets the prompt, unless it has that many sequences more than the least loaded
# one and half as many again: then a prefill elsewhere costs less than the company here.
_AFFINITY_SEQUENCES = 4
_LOOKUP_SECONDS = 5.0
# A verifier that owes tokens and sends nothing for so long, while another one sends, does not go on. Longer than a step
# takes that has a long prompt in it.
_STALL_SECONDS = 20.0
_HUNG_SECONDS = 5.0  # the same of one whose health says that it does not serve, where another one serves
_RECENT_SECONDS = 2.0
_JUDGING_SECONDS = 1.0


class VerifierPool:
    """Verifiers of one model. Health, load and membership are kept by background tasks between `start` and `close`.

    All must serve the same model, field by field of its identity. One that does not is not used, and says why, until
    the others are gone for good or serve what it serves: a verifier is judged by what the others served last.
    """

    def __init__(
        self, addresses: str, *, max_message_bytes: int, keepalive_seconds: float, tls: Tls | None = None
    ) -> None:
        """`addresses`: see `parse_addresses`. Names are looked up again and again, as verifiers come and go."""
        self._parts = parse_addresses(addresses)
        self._max_message_bytes = max_message_bytes
        self._keepalive_seconds = keepalive_seconds
        self._tls = tls
        self._changed = asyncio.Event()
        self._prefixes: PrefixMap[Member] = PrefixMap()
        self.members: list[Member] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._policy: TrafficPolicy | None = None

    async def start(self) -> None:
        """Begin to look after the members; none need be usable yet."""
        await self._look_up()
        self._tasks.append(kept_up(self._keep_judging, "looking for verifiers that do not go on"))
        if not are_fixed(self._parts):
            self._tasks.append(kept_up(self._keep_looking_up, "looking up the verifiers' names"))

    async def close(self) -> None:
        """End every connection, running generations included."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(member.close() for member in self.members))

    # --- who is there -------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> list[Member]:
        """Members that take generations now."""
        return [member for member in self.members if member.is_usable]

    @property
    def complaints(self) -> str:
        """Why members are not used, or used last, one after the other; empty while all are well."""
        if not self.members:
            return f"no verifier has the address {', '.join(self._parts)}"
        return "; ".join(filter(None, (member.complaint for member in self.members)))

    def info(self) -> VerifierInfo:
        """Who the verifiers are, as one of them said last. Raises Unavailable where none is usable."""
        for member in self.usable:
            if member.info is not None:
                return member.info
        raise Unavailable(self.complaints)

    async def ask_all(self) -> list[VerifierInfo]:
        """What those that can be used say of themselves now. Raises Unavailable where none answers."""
        asked = await asyncio.gather(*(member.client.info() for member in self.usable), return_exceptions=True)
        answers = [item for item in asked if isinstance(item, VerifierInfo)]
        if not answers:
            reasons = [str(item) for item in asked if isinstance(item, SaguaroError)]
            raise Unavailable("; ".join(reasons) or self.complaints)
        return answers

    async def wait_until_usable(self, timeout_seconds: float) -> VerifierInfo:
        """Wait for the first. Raises Unavailable after the timeout; at once Incompatible if all are unfit."""
        deadline = time.monotonic() + timeout_seconds
        while not self.usable:
            if self.members and all(member.is_unfit for member in self.members):
                raise Incompatible(self.complaints)
            if not await self.wait_for_change(deadline - time.monotonic()):
                raise Unavailable(self.complaints)
        return self.info()

    async def wait_for_change(self, timeout_seconds: float) -> bool:
        """Whether some member came or went within that time."""
        try:
            await asyncio.wait_for(self._changed.wait(), max(timeout_seconds, 0))
        except TimeoutError:
            return False
        return True

    async def keep_ready(self, say_ready: Callable[[bool], Awaitable[None]]) -> None:
        """Until cancelled: say whether any verifier can be used, now and at every change."""
        while True:
            changed = self._changed  # of now: one that comes while we speak counts, too
            await say_ready(bool(self.usable))
            await changed.wait()

    # --- what they are told -------------------------------------------------------------------------------------------

    async def apply(self, policy: TrafficPolicy) -> list[KeptPolicy]:
        """Keep all to it, those included that join later; returns within a second, whether all could be told or not."""
        self._policy = policy
        await asyncio.gather(*(member.apply(policy) for member in self.members))
        return self.kept

    @property
    def kept(self) -> list[KeptPolicy]:
        """Who keeps to what was applied last."""
        return [member.kept for member in self.members]

    # --- who takes the next -------------------------------------------------------------------------------------------

    def choose(
        self, tokens: Sequence[int], model: ModelIdentity, without: Collection[Member] = (), *, is_careful: bool = False
    ) -> Member | None:
        """The verifier that last served the longest beginning of `tokens`, else the least loaded; None if none can.

        Those that are out for their conduct are chosen where all are. `is_careful`: as are those whose last request
        failed.
        """
        able = [item for item in self.usable if item not in without and item.info and item.info.model == model]
        if not able:
            return None
        able = [item for item in able if item.conduct.is_in] or able
        if is_careful:
            able = [item for item in able if not item.conduct.is_doubtful] or able
        least = min(able, key=lambda item: item.load)
        known = self._prefixes.find(tokens, able.__contains__)
        return least if known is None or _is_crowded(known, least) else known

    def served(self, tokens: Sequence[int], member: Member) -> None:
        """`member` computes, or has computed, these tokens: what begins with them finds its blocks there."""
        self._prefixes.remember(tokens, member)

    async def _keep_judging(self) -> None:
        while True:
            await asyncio.sleep(_JUDGING_SECONDS)
            for member in self.members:
                others = [other.pace for other in self.usable if other is not member]
                if member.is_usable:
                    late = member.pace.late_seconds
                    does_not_go_on = late >= _STALL_SECONDS and any(
                        pace.idle_seconds < _RECENT_SECONDS for pace in others
                    )
                else:  # it says itself that it does not serve, or cannot be asked
                    late = member.pace.silent_seconds
                    does_not_go_on = late >= (_HUNG_SECONDS if others else _STALL_SECONDS)
                if does_not_go_on:
                    member.abandon(f"sent nothing for {late:.0f} s and does not go on with what it has")

    # --- who may be one of them ---------------------------------------------------------------------------------------

    async def _keep_looking_up(self) -> None:
        while True:
            await asyncio.sleep(_LOOKUP_SECONDS)
            await self._look_up()

    async def _look_up(self) -> None:
        """Members are the addresses of now, and those that still serve: a drain begins by leaving the name."""
        wanted = await resolve(self._parts)
        for address in sorted(wanted.difference(member.address for member in self.members)):
            member = self._member(address)
            if self._policy is not None:
                await member.apply(self._policy)
            member.start()
            self.members.append(member)
        gone = [item for item in self.members if item.address not in wanted and not item.is_usable and item.is_idle]
        for member in gone:
            self.members.remove(member)
            await member.close()

    def _member(self, address: str) -> Member:
        client = VerifierClient(
            address,
            max_message_bytes=self._max_message_bytes,
            keepalive_seconds=self._keepalive_seconds,
            tls=self._tls,
        )
        return Member(address, client, judge=self._judge, on_change=self._on_change)

    def _judge(self, newcomer: Member, info: VerifierInfo) -> str:
        for member in self.members:
            if member is not newcomer and member.info is not None:
                found = _differences(info.model, member.info.model)
                return f"{newcomer.client.peer} serves another model than the others: {found}" if found else ""
        return ""

    def _on_change(self, member: Member) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if member.is_usable:
            for other in self.members:
                other.judge_anew()


def _is_crowded(known: Member, least: Member) -> bool:
    (is_silent, num_there), (_, fewest) = known.load, least.load
    return is_silent or num_there > max(fewest + _AFFINITY_SEQUENCES, fewest * 3 // 2)


def _differences(own: ModelIdentity, others: ModelIdentity) -> str:
    pairs = ((field.name, getattr(own, field.name), getattr(others, field.name)) for field in fields(ModelIdentity))
    return ", ".join(f"{name} is {mine}, theirs {theirs}" for name, mine, theirs in pairs if mine != theirs)
