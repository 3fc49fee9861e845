"""Who comes in: API keys, checked in one place for both doors, from a file that is read again when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hmac
import ipaddress
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.allowance import Allowance, Clock
from saguaro.errors import ConfigurationError, PermissionDenied, Unauthenticated
from saguaro.keys import KeyLimits, KeyRecord, hash_of, read_keys
from saguaro.server import kept_up

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_FAREWELL_SECONDS = 5.0


def longest_call_seconds(request_timeout_seconds: float) -> float:
    """When a door ends a call that does not end by itself, as where its client reads nothing.

    A body may take as long as an answer, and the answer's own end must have time to go out.
    """
    return 2 * request_timeout_seconds + _FAREWELL_SECONDS


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Principal:
    """Whoever makes a call: `name` is that of the key, "" at a gateway that is open to all."""

    def __init__(
        self, name: str, models: Sequence[str] | None, allowance: Allowance, *, may_set_policy: bool = True
    ) -> None:
        self.name = name
        self.allowance = allowance
        self._models = models
        self._may_set_policy = may_set_policy

    def may_ask(self, model: str) -> bool:
        """Whether the model is among those of the key."""
        return self._models is None or model in self._models

    def check_model(self, model: str) -> None:
        """Raises PermissionDenied unless `may_ask`."""
        if not self.may_ask(model):
            known = ", ".join(self._models or ()) or "none"
            raise PermissionDenied(f'key "{self.name}" may not ask for the model "{model}"; it may ask for {known}')

    def check_policy(self) -> None:
        """Raises PermissionDenied unless the key may change the deployment's policy."""
        if not self._may_set_policy:
            raise PermissionDenied(f'key "{self.name}" may not set policies; make one with --may-set-policy')


ANYONE = Principal("", None, Allowance("", KeyLimits()))

_principal: contextvars.ContextVar[Principal] = contextvars.ContextVar("principal", default=ANYONE)


def current_principal() -> Principal:
    """Who makes the call that runs; ANYONE outside of calls, and where no keys are asked for."""
    return _principal.get()


class Guard:
    """Stands at both doors. Without `keys` everyone may enter."""

    def __init__(
        self,
        keys: Sequence[KeyRecord] | None = None,
        *,
        clock: Clock = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self._now = now
        self._known: dict[str, tuple[KeyRecord, Allowance]] | None = None  # by name; None: open to all
        if keys is not None:
            self.replace(keys)

    def replace(self, keys: Sequence[KeyRecord]) -> None:
        """The keys from now on. Calls that run go on; a key that stays as it was keeps what it has used."""
        known = self._known or {}
        self._known = {
            record.name: known[record.name]
            if record.name in known and known[record.name][0] == record
            else (record, Allowance(record.name, record, self._clock))
            for record in keys
        }

    def enter(self, authorization: str | None) -> Principal:
        """Who sent this `authorization` ("Bearer KEY"); from now on the current principal of this task.

        Raises Unauthenticated, or RateLimited where the key has made its calls of this minute.
        """
        principal = ANYONE if self._known is None else self._holder(authorization)
        principal.allowance.take_request()
        _principal.set(principal)
        return principal

    def enter_by_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """`enter`, as gRPC has it."""
        given = metadata.get("authorization")
        self.enter(given if isinstance(given, str) else None)

    def _holder(self, authorization: str | None) -> Principal:
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated('this gateway asks for an API key: send "authorization: Bearer KEY"')
        record, allowance = self._find(hash_of(key.strip()))
        if record.expires_at is not None and record.expires_at <= self._now():
            raise Unauthenticated(f'key "{record.name}" expired at {record.expires_at.isoformat(timespec="seconds")}')
        return Principal(record.name, record.models, allowance, may_set_policy=record.may_set_policy)

    def _find(self, digest: str) -> tuple[KeyRecord, Allowance]:
        """All records are compared, each in the time of a whole comparison: how long it takes tells nothing of them."""
        matching = [item for item in (self._known or {}).values() if hmac.compare_digest(item[0].sha256, digest)]
        if not matching:
            raise Unauthenticated("this gateway does not know the API key")
        return matching[0]


class KeysFile:
    """Keeps a guard in step with the file."""

    def __init__(self, path: Path, guard: Guard) -> None:
        self._path = path
        self._guard = guard
        self._seen: tuple[int, ...] | None = None

    @contextlib.asynccontextmanager
    async def watched(self, look_seconds: float = _LOOK_SECONDS) -> AsyncIterator[None]:
        """Read the file, and again whenever it has changed, until the block ends.

        Raises ConfigurationError where it cannot be read at first. Later, a broken file leaves the keys as they were.
        """
        await asyncio.to_thread(self._read)
        watching = kept_up(lambda: self._watch(look_seconds), "the watch on the keys file")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, look_seconds: float) -> None:
        while True:
            await asyncio.sleep(look_seconds)
            try:
                await asyncio.to_thread(self._read_if_changed)
            except ConfigurationError as error:
                logger.error("%s; the keys stay as they were", error)

    def _read_if_changed(self) -> None:
        if self._state() != self._seen:
            self._read()

    def _read(self) -> None:
        self._seen = self._state()  # first: a broken file is told once, not at every look
        keys = read_keys(self._path)
        self._guard.replace(keys)
        logger.info("keys file %s: %d keys", self._path, len(keys))

    def _state(self) -> tuple[int, ...] | None:
        try:
            state = os.stat(self._path)
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size, state.st_ino
