"""The error tree to and from gRPC status: one table and its inverse.

Details travel as google.rpc.Status in `grpc-status-details-bin`: BadRequest names the field of an InvalidRequest,
RetryInfo the delay of an Unavailable.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from saguaro.errors import (
    ConfigurationError,
    Incompatible,
    InvalidRequest,
    ModelNotFound,
    SaguaroError,
    SequenceFault,
    Unavailable,
)

STATUS_OF: dict[type[SaguaroError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    ModelNotFound: grpc.StatusCode.NOT_FOUND,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    Incompatible: grpc.StatusCode.FAILED_PRECONDITION,
    SequenceFault: grpc.StatusCode.INTERNAL,
    # A caller cannot mend the settings of a service: to him it is our fault.
    ConfigurationError: grpc.StatusCode.INTERNAL,
    SaguaroError: grpc.StatusCode.INTERNAL,
}

_DETAILS_KEY = "grpc-status-details-bin"


def code_of(error: SaguaroError) -> grpc.StatusCode:
    """The row of the table that is nearest to the error's type."""
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def status_of(error: SaguaroError) -> Any:
    """The `grpc.Status` that `context.abort_with_status` takes."""
    code = code_of(error)
    message = status_pb2.Status(code=code.value[0], message=str(error))
    detail = _detail_of(error)
    if detail is not None:
        packed = any_pb2.Any()
        packed.Pack(detail)
        message.details.append(packed)
    return rpc_status.to_status(message)


def error_of(error: grpc.RpcError, peer: str) -> SaguaroError:
    """The typed error that the status of `peer` ("the gateway at ...") stands for, or that stands for its absence.

    Both channel kinds raise errors with `code()`, `details()` and `trailing_metadata()`.
    """
    call: Any = error
    code, text = call.code(), call.details() or "no reason given"
    bad_request, retry_info = _details(call.trailing_metadata() or ())
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidRequest(_field(bad_request), text)
        case grpc.StatusCode.OUT_OF_RANGE | grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequest("", f"the message is too large: {text}")
        case grpc.StatusCode.NOT_FOUND:
            return ModelNotFound(text)
        case grpc.StatusCode.UNAVAILABLE if retry_info is not None:
            return Unavailable(text, retry_info.retry_delay.ToTimedelta().total_seconds())
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            # Our servers say when to come back; without that the words are gRPC's, on a connection.
            return Unavailable(f"{peer} cannot be reached: {text}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unavailable(f"{peer} did not finish before the deadline")
        case grpc.StatusCode.FAILED_PRECONDITION:
            return Incompatible(text)
        case grpc.StatusCode.UNIMPLEMENTED:
            return Incompatible(f"{peer} does not serve this call: {text}")
        case _:
            return SequenceFault(text)


def _detail_of(error: SaguaroError) -> error_details_pb2.BadRequest | error_details_pb2.RetryInfo | None:
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=str(error))
        return error_details_pb2.BadRequest(field_violations=[violation])
    if isinstance(error, Unavailable):
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_seconds * 1e9))
        return error_details_pb2.RetryInfo(retry_delay=delay)
    return None


def _field(bad_request: error_details_pb2.BadRequest | None) -> str:
    return bad_request.field_violations[0].field if bad_request is not None and bad_request.field_violations else ""


def _details(
    metadata: Any,
) -> tuple[error_details_pb2.BadRequest | None, error_details_pb2.RetryInfo | None]:
    bad_request: error_details_pb2.BadRequest | None = None
    retry_info: error_details_pb2.RetryInfo | None = None
    for key, value in metadata:
        if key == _DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
                    bad_request = error_details_pb2.BadRequest.FromString(detail.value)
                elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                    retry_info = error_details_pb2.RetryInfo.FromString(detail.value)
    return bad_request, retry_info
