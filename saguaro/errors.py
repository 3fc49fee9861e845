"""Every error that Saguaro raises on purpose.

SaguaroError
 +-- InvalidRequest      a parameter, prompt or size that cannot be served; names the field
 +-- ModelNotFound       a model name that is not served
 +-- SessionNotFound     a session that is not kept, or no longer
 +-- SessionBusy         a session that has a turn running
 +-- StreamNotFound      an answer that cannot be resumed, or no longer
 +-- Unauthenticated     no API key, or none that is known
 +-- PermissionDenied    a key that is known, but not for this
 +-- RateLimited         a key that has used up what it may for now; names when to come back
 +-- Unavailable         try again later or elsewhere: draining, queue full, peer away
 +-- DeadlineExceeded    not finished in the time that the caller or the service gives
 +-- Incompatible        two services that cannot work together; lists the differences
 +-- SequenceFault       our own fault on one sequence; the others go on
 +-- ServiceFault        our own fault that a service cannot go on from; its process ends
 +-- ConfigurationError  settings or model files that a service cannot start with

`saguaro.server` maps the tree to gRPC codes by one table, `saguaro.client` maps codes back.
"""

from __future__ import annotations


class SaguaroError(Exception):
    """Base of all. The message says what was given and what would work."""


class InvalidRequest(SaguaroError):
    """A request that can never be served as it stands."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ModelNotFound(SaguaroError):
    """A model name that is not served here."""


class SessionNotFound(SaguaroError):
    """A session that is not kept here: never made, deleted, or unused for longer than sessions are kept."""


class SessionBusy(SaguaroError):
    """A session that has a turn running; the next can begin when that has ended."""


class StreamNotFound(SaguaroError):
    """An answer that is not kept here for a client that comes back, or no longer."""


class Unauthenticated(SaguaroError):
    """No API key, or none that is known, or one that has expired."""


class PermissionDenied(SaguaroError):
    """The API key is known, but what was asked for is not among what it may."""


class RateLimited(SaguaroError):
    """The API key has used up what it may for now; the same request may succeed after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(SaguaroError):
    """Cannot serve now; the same request may succeed after `retry_after_seconds`, or elsewhere."""

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineExceeded(SaguaroError):
    """The answer was not finished in time; what had come of it by then is whole."""


class Incompatible(SaguaroError):
    """Two services whose models or contracts do not fit."""


class SequenceFault(SaguaroError):
    """Our own fault on one sequence; the traceback is in the service's log under the request id."""


class ServiceFault(SaguaroError):
    """Our own fault that a service cannot go on from: its process ends, to be started anew."""


class ConfigurationError(SaguaroError):
    """Settings or files that a service cannot start with."""
