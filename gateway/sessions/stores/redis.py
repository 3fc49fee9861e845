"""Sessions in Redis or Valkey, for gateways on several machines.

Each call is one script, so it is atomic, and times are the server's, so gateways' clocks need not agree. A session is
a hash that the server forgets by itself; the set of their ends is there to count them. One server, no cluster: the set
and a hash may be on different nodes there.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from gateway.sessions.stores.protocol import StoredSession, StoreLimits, busy, full
from saguaro.errors import ConfigurationError, SessionBusy, Unavailable

_TIMEOUT_SECONDS = 5.0
_ENDS = "saguaro:session-ends"
_SESSION = "saguaro:session:"

# KEYS: the session, the set of ends. ARGV: session id, then each script's own. Times are milliseconds. Sessions of an
# owner have a set of their ends, too.
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function ends_of(owner) return KEYS[2] .. ':' .. owner end
local function keep(ms)
  redis.call('PEXPIRE', KEYS[1], ms)
  redis.call('ZADD', KEYS[2], now + ms, ARGV[1])
  local owner = redis.call('HGET', KEYS[1], 'owner')
  if owner then
    local ends = ends_of(owner)
    redis.call('ZADD', ends, now + ms, ARGV[1])
    redis.call('PEXPIRE', ends, math.max(ms, redis.call('PTTL', ends)))
  end
end
local function owned(owner)
  redis.call('ZREMRANGEBYSCORE', ends_of(owner), '-inf', now)
  local bytes, ids = 0, redis.call('ZRANGE', ends_of(owner), 0, -1)
  for _, id in ipairs(ids) do bytes = bytes + redis.call('HSTRLEN', 'SESSION' .. id, 'record') end
  return #ids, bytes
end
""".replace("SESSION", _SESSION)
# Limits of 0 are none. A list of two numbers is what its owner has, where that is too much.
_CREATE = (  # record, ttl, max_sessions, owner, the owner's max sessions, max bytes
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then return false end
if ARGV[5] ~= '' then
  local count, bytes = owned(ARGV[5])
  local most, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
  if (most > 0 and count >= most) or (most_bytes > 0 and bytes >= most_bytes) then return {count, bytes} end
  redis.call('HSET', KEYS[1], 'owner', ARGV[5])
end
redis.call('HSET', KEYS[1], 'record', ARGV[2])
keep(tonumber(ARGV[3]))
return now + tonumber(ARGV[3])
"""
)
_READ = (
    _NOW
    + """
local found = redis.call('HMGET', KEYS[1], 'record', 'held_until')
if not found[1] then return false end
local ends_at = redis.call('ZSCORE', KEYS[2], ARGV[1]) or now + redis.call('PTTL', KEYS[1])
return {found[1], tonumber(ends_at), tonumber(found[2] or 0) > now and 1 or 0}
"""
)
_ACQUIRE = (  # holder, lease, time to keep, the owner's max bytes
    _NOW
    + """
local found = redis.call('HMGET', KEYS[1], 'record', 'held_until', 'owner')
if not found[1] then return false end
if tonumber(found[2] or 0) > now then return {0} end
if found[3] and tonumber(ARGV[5]) > 0 then
  local count, bytes = owned(found[3])
  if bytes >= tonumber(ARGV[5]) then return {2, found[3], bytes} end
end
redis.call('HSET', KEYS[1], 'holder', ARGV[2], 'held_until', now + tonumber(ARGV[3]))
keep(tonumber(ARGV[4]))
return {1, found[1]}
"""
)
_RENEW = (  # holder, lease, time to keep
    _NOW
    + """
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'held_until', now + tonumber(ARGV[3]))
keep(tonumber(ARGV[4]))
return 1
"""
)
_RELEASE = (  # holder, ttl, record if there is one
    _NOW
    + """
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], 'holder', 'held_until')
if ARGV[4] then redis.call('HSET', KEYS[1], 'record', ARGV[4]) end
keep(tonumber(ARGV[3]))
return 1
"""
)
_DELETE = """
redis.call('ZREM', KEYS[2], ARGV[1])
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner then redis.call('ZREM', KEYS[2] .. ':' .. owner, ARGV[1]) end
return redis.call('DEL', KEYS[1])
"""


class RedisStore:
    """See `SessionStore`. `url` as redis://[user:password@]host:port/database, rediss:// for TLS."""

    def __init__(self, url: str, limits: StoreLimits) -> None:
        try:
            import redis.asyncio as redis
            from redis.exceptions import RedisError
        except ImportError:
            raise ConfigurationError(
                f"session_store {self._shown(url)} needs another package: pip install 'redis>=8,<9'"
            ) from None
        self.lease_seconds = limits.lease_seconds
        self._limits = limits
        self._ttl_ms, self._lease_ms = round(limits.ttl_seconds * 1000), round(limits.lease_seconds * 1000)
        self._held_ms = max(self._ttl_ms, self._lease_ms)
        self._peer = self._shown(url)
        self._faults = (RedisError, OSError)
        try:
            self._redis: Any = redis.Redis.from_url(
                url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS
            )
        except ValueError as error:
            raise ConfigurationError(f"session_store {self._peer} is no address: {error}") from None

    async def create(self, session_id: str, record: bytes, owner: str = "") -> float:
        """When it will be forgotten. Raises Unavailable for a full store, InvalidRequest for a full owner."""
        limits = self._limits
        of_owner = (owner, limits.max_sessions_per_owner or 0, limits.max_bytes_per_owner or 0)
        made = await self._run(_CREATE, session_id, record, self._ttl_ms, limits.max_sessions, *of_owner)
        if made is None:
            raise Unavailable(full(limits.max_sessions))
        if isinstance(made, list):
            limits.check_owner(owner, *made)
        end_ms: int = made
        return end_ms / 1000

    async def read(self, session_id: str) -> StoredSession | None:
        """None for an unknown session."""
        found = await self._run(_READ, session_id)
        return None if found is None else StoredSession(found[0], found[1] / 1000, is_held=bool(found[2]))

    async def acquire(self, session_id: str, holder: str) -> bytes | None:
        """The record, now held; None for an unknown session. Raises SessionBusy, InvalidRequest."""
        most_bytes = self._limits.max_bytes_per_owner or 0
        found = await self._run(_ACQUIRE, session_id, holder, self._lease_ms, self._held_ms, most_bytes)
        if found is None:
            return None
        match found:
            case [1, record]:
                return bytes(record)
            case [2, owner, num_bytes]:
                self._limits.check_owner(owner.decode(), None, num_bytes)
        raise SessionBusy(busy(session_id))

    async def renew(self, session_id: str, holder: str) -> bool:
        """Begin the lease anew; False where the hold was lost."""
        return bool(await self._run(_RENEW, session_id, holder, self._lease_ms, self._held_ms))

    async def release(self, session_id: str, holder: str, record: bytes | None) -> bool:
        """End the hold; False where it was lost."""
        new = () if record is None else (record,)
        return bool(await self._run(_RELEASE, session_id, holder, self._ttl_ms, *new))

    async def delete(self, session_id: str) -> bool:
        """Forget it; False for an unknown session."""
        return bool(await self._run(_DELETE, session_id))

    async def close(self) -> None:
        """Ends the connections."""
        await self._redis.aclose()

    async def _run(self, script: str, session_id: str, *arguments: Any) -> Any:
        try:
            # The library sends the script's digest, and the script itself only to a server that does not know it.
            call = self._redis.register_script(script)
            return await call(keys=(f"{_SESSION}{session_id}", _ENDS), args=(session_id, *arguments))
        except self._faults as error:
            raise Unavailable(f"the session store {self._peer} does not answer: {error}") from None

    @staticmethod
    def _shown(url: str) -> str:
        """Without user and password."""
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
