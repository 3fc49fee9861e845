"""What a verifier's errors mean to the gateway: whether another verifier may do better."""

from __future__ import annotations

import grpc

from saguaro.errors import SaguaroError, Unavailable
from saguaro.wire.status import error_of, error_of_packed

_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OWN_WORDS = "grpc-status-details-bin"  # where our services put theirs; gRPC itself puts nothing there


class VerifierAway(Unavailable):
    """This verifier does not begin, or go on with, what was asked of it; another one may."""

    def __init__(self, error: Unavailable, *, is_refusal: bool) -> None:
        """`is_refusal`: the verifier said so itself, so it lives; otherwise the connection is gone."""
        super().__init__(str(error), error.retry_after_seconds)
        self.is_refusal = is_refusal


def failed(error: grpc.aio.AioRpcError, peer: str) -> SaguaroError:
    """What a call to `peer` came to."""
    typed = error_of(error, peer)
    if not isinstance(typed, Unavailable) or error.code() not in _AWAY:
        return typed
    return VerifierAway(typed, is_refusal=any(key == _OWN_WORDS for key, _ in error.trailing_metadata() or ()))


def refused(status: bytes, peer: str) -> SaguaroError:
    """What one generation came to whose stream goes on."""
    typed = error_of_packed(status, peer)
    return VerifierAway(typed, is_refusal=True) if isinstance(typed, Unavailable) else typed
