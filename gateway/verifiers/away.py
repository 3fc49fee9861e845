"""What a verifier's errors mean to the gateway: whether another verifier may do better."""

from __future__ import annotations

import grpc

from saguaro.errors import DeadlineExceeded, InvalidRequest, ModelNotFound, SaguaroError, SequenceFault, Unavailable
from saguaro.wire.status import error_of, error_of_packed

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OWN_WORDS = "grpc-status-details-bin"  # where our services put theirs; gRPC itself puts nothing there
_OF_THE_REQUEST = (InvalidRequest, ModelNotFound, DeadlineExceeded)  # the same at every verifier


class VerifierAway(Unavailable):
    """This verifier does not begin, or go on with, what was asked of it; another one may."""

    def __init__(self, error: Unavailable, *, is_refusal: bool) -> None:
        """`is_refusal`: the verifier said so itself, so it lives; otherwise the connection is gone."""
        super().__init__(str(error), error.retry_after_seconds)
        self.is_refusal = is_refusal


class VerifierFault(SequenceFault):
    """This verifier failed at it, by its own fault or the request's: only another verifier can tell."""

    def __init__(self, reason: str, *, is_of_all: bool = False) -> None:
        """`is_of_all`: what failed is the stream of many generations, any of which may be the cause, or none."""
        super().__init__(reason)
        self.is_of_all = is_of_all


def failed(error: grpc.aio.AioRpcError, peer: str) -> SaguaroError:
    """What a call to `peer` came to."""
    typed = error_of(error, peer)
    if not isinstance(typed, Unavailable) or error.code() not in _AWAY:
        return typed
    return VerifierAway(typed, is_refusal=any(key == _OWN_WORDS for key, _ in error.trailing_metadata() or ()))


def broken(error: Exception, peer: str) -> SaguaroError:
    """What the generations of a stream came to that has ended by `error`."""
    typed = failed(error, peer) if isinstance(error, grpc.aio.AioRpcError) else error
    if isinstance(typed, VerifierAway):
        return typed
    return VerifierFault(f"the stream of {peer} broke: {typed or type(typed).__name__}", is_of_all=True)


def refused(status: bytes, peer: str) -> SaguaroError:
    """What one generation came to whose stream goes on."""
    typed = error_of_packed(status, peer)
    if isinstance(typed, Unavailable):
        return VerifierAway(typed, is_refusal=True)
    return typed if isinstance(typed, _OF_THE_REQUEST) else VerifierFault(str(typed))
