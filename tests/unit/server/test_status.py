"""One table from errors to status, and back."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from saguaro import errors
from saguaro.errors import (
    ConfigurationError,
    DeadlineExceeded,
    Incompatible,
    InvalidRequest,
    ModelNotFound,
    PermissionDenied,
    RateLimited,
    SaguaroError,
    SequenceFault,
    Unauthenticated,
    Unavailable,
)
from saguaro.wire.status import STATUS_OF, error_of, status_of

EXAMPLES: list[SaguaroError] = [
    InvalidRequest("sampling.top_p", "top_p is 2"),
    ModelNotFound("no model x"),
    Unauthenticated("no key"),
    PermissionDenied("not this model"),
    RateLimited("5 requests a minute", 2.5),
    Unavailable("queue full", 2.5),
    DeadlineExceeded("not finished within 3 s"),
    Incompatible("dtype differs"),
    SequenceFault("broke"),
]


class FakeRpcError(grpc.RpcError):  # type: ignore[misc]
    """What a channel raises."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: Any = ()) -> None:
        self._code, self._details, self._metadata = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._metadata


def all_subclasses(kind: type[SaguaroError]) -> set[type[SaguaroError]]:
    return {kind, *(deeper for child in kind.__subclasses__() for deeper in all_subclasses(child))}


def test_the_table_covers_the_whole_tree() -> None:
    defined = {kind for kind in all_subclasses(SaguaroError) if kind.__module__ == errors.__name__}
    assert defined == set(STATUS_OF)
    assert len(defined) > 5


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_itself(error: SaguaroError) -> None:
    status = status_of(error)
    back = error_of(FakeRpcError(status.code, status.details, status.trailing_metadata), "the peer")
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_what_a_caller_cannot_mend_is_our_fault_to_him() -> None:
    status = status_of(ConfigurationError("bad file"))
    assert status.code is grpc.StatusCode.INTERNAL
    assert type(error_of(FakeRpcError(status.code, status.details), "the peer")) is SequenceFault


def test_a_subclass_from_elsewhere_takes_the_code_of_its_parent() -> None:
    class TooManyWaiting(Unavailable):
        pass

    assert status_of(TooManyWaiting("full")).code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_code_of_grpc_becomes_a_typed_error(code: grpc.StatusCode) -> None:
    assert isinstance(error_of(FakeRpcError(code, "words"), "the peer"), SaguaroError)


def test_a_peer_that_is_not_there_is_named_since_grpc_s_words_do_not_name_it() -> None:
    error = error_of(FakeRpcError(grpc.StatusCode.UNAVAILABLE, "connection refused"), "the gateway at x:1")
    assert isinstance(error, Unavailable)
    assert str(error) == "the gateway at x:1 cannot be reached: connection refused"
