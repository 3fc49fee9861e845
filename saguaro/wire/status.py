"""The error tree to and from gRPC status: one table and its inverse.

Details travel as google.rpc.Status in `grpc-status-details-bin`: BadRequest names the field of an InvalidRequest,
RetryInfo the delay of an Unavailable or a RateLimited. Where several errors share a code, ErrorInfo says which it is.

Both travel in trailers, for which peers take 8 KiB in all: more, and the error would be lost for its own length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import Metadata
from grpc_status import rpc_status

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
    ServiceFault,
    SessionBusy,
    SessionNotFound,
    StreamNotFound,
    Unauthenticated,
    Unavailable,
)

STATUS_OF: dict[type[SaguaroError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    ModelNotFound: grpc.StatusCode.NOT_FOUND,
    SessionNotFound: grpc.StatusCode.NOT_FOUND,
    SessionBusy: grpc.StatusCode.FAILED_PRECONDITION,
    StreamNotFound: grpc.StatusCode.NOT_FOUND,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    RateLimited: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    Incompatible: grpc.StatusCode.FAILED_PRECONDITION,
    SequenceFault: grpc.StatusCode.INTERNAL,
    # A caller cannot mend the settings of a service: to him it is our fault.
    ConfigurationError: grpc.StatusCode.INTERNAL,
    ServiceFault: grpc.StatusCode.INTERNAL,
    SaguaroError: grpc.StatusCode.INTERNAL,
}

# Errors that share their code with another; its reason in ErrorInfo tells them apart.
_REASON_OF: dict[type[SaguaroError], str] = {
    SessionNotFound: "SESSION_NOT_FOUND",
    SessionBusy: "SESSION_BUSY",
    StreamNotFound: "STREAM_NOT_FOUND",
}
_KIND_OF = {reason: kind for kind, reason in _REASON_OF.items()}
_CODE_OF = {code.value[0]: code for code in grpc.StatusCode}

_HINTS = {
    "WRONG_VERSION_NUMBER": "it answers, but not in TLS",
    "Tls handshake failed": "its certificate is not trusted here, or is for another name",
    "Socket closed": "it hung up at once, as a port does that asks for TLS, or for a client certificate that it trusts",
}

# The words travel percent-encoded, beyond ASCII at nine bytes a character, and once more in the details, as base64.
_MAX_ENCODED_BYTES = 2048
_MAX_FIELD_CHARACTERS, _MAX_DESCRIPTION_BYTES = 128, 512

_DETAILS_KEY = "grpc-status-details-bin"


def code_of(error: SaguaroError) -> grpc.StatusCode:
    """The row of the table that is nearest to the error's type."""
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def status_of(error: SaguaroError) -> Any:
    """The `grpc.Status` that `context.abort_with_status` takes. Long words are cut."""
    return rpc_status.to_status(_message_of(error, _MAX_ENCODED_BYTES))


def packed_status(error: SaguaroError) -> bytes:
    """The error as a field of a message, where its stream goes on: a google.rpc.Status."""
    return bytes(_message_of(error).SerializeToString())


def error_of_packed(status: bytes, peer: str) -> SaguaroError:
    """What `packed_status` was made of."""
    message = status_pb2.Status.FromString(status)
    details = Metadata((_DETAILS_KEY, status))
    return error_of(grpc.aio.AioRpcError(_CODE_OF[message.code], Metadata(), details, message.message), peer)


def cut_to(text: str, max_encoded_bytes: int) -> str:
    """The text, or its beginning and how much is left out, in so many bytes as gRPC percent-encodes it, or a few more.

    Lone surrogates, which are no text, become question marks.
    """
    text = text.encode(errors="replace").decode()
    used = 0
    for position, character in enumerate(text):
        # Printable ASCII but the percent sign travels as it is, each byte of all else as three.
        used += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if used > max_encoded_bytes:
            return f"{text[:position]}... ({len(text) - position} more characters)"
    return text


def _message_of(error: SaguaroError, max_encoded_bytes: int | None = None) -> status_pb2.Status:
    text = str(error) if max_encoded_bytes is None else cut_to(str(error), max_encoded_bytes)
    message = status_pb2.Status(code=code_of(error).value[0], message=text)
    detail = _detail_of(error)
    if detail is not None:
        packed = any_pb2.Any()
        packed.Pack(detail)
        message.details.append(packed)
    return message


def error_of(error: grpc.RpcError, peer: str) -> SaguaroError:
    """The typed error that the status of `peer` ("the gateway at ...") stands for, or that stands for its absence.

    Both channel kinds raise errors with `code()`, `details()` and `trailing_metadata()`.
    """
    call: Any = error
    code, text = call.code(), call.details() or "no reason given"
    metadata = call.trailing_metadata() or ()
    details = _details(metadata)
    is_ours = any(key == _DETAILS_KEY for key, _ in metadata)
    if details.kind is not None:
        return details.kind(text)
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidRequest(_field(details.bad_request), text)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if details.retry_info is not None:
            return RateLimited(text, details.retry_info.retry_delay.ToTimedelta().total_seconds())
        case grpc.StatusCode.OUT_OF_RANGE | grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequest("", f"the message is too large: {text}")
        case grpc.StatusCode.NOT_FOUND:
            return ModelNotFound(text)
        case grpc.StatusCode.UNAUTHENTICATED:
            return Unauthenticated(text)
        case grpc.StatusCode.PERMISSION_DENIED:
            return PermissionDenied(text)
        case grpc.StatusCode.UNAVAILABLE if details.retry_info is not None:
            return Unavailable(text, details.retry_info.retry_delay.ToTimedelta().total_seconds())
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            # Our servers say when to come back; without that the words are gRPC's, on a connection.
            return Unavailable(f"{peer} cannot be reached: {text}{_hint(text)}")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            # Without details the words are gRPC's, on a deadline that this side had set.
            return DeadlineExceeded(text if is_ours else f"{peer} did not finish before the deadline")
        case grpc.StatusCode.FAILED_PRECONDITION:
            return Incompatible(text)
        case grpc.StatusCode.UNIMPLEMENTED:
            return Incompatible(f"{peer} does not serve this call: {text}")
        case _:
            return SequenceFault(text)


def _detail_of(
    error: SaguaroError,
) -> error_details_pb2.BadRequest | error_details_pb2.RetryInfo | error_details_pb2.ErrorInfo | None:
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=cut_to(error.field[:_MAX_FIELD_CHARACTERS], 3 * _MAX_FIELD_CHARACTERS),
            description=cut_to(str(error), _MAX_DESCRIPTION_BYTES),
        )
        return error_details_pb2.BadRequest(field_violations=[violation])
    if isinstance(error, Unavailable | RateLimited):
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_seconds * 1e9))
        return error_details_pb2.RetryInfo(retry_delay=delay)
    reason = next((_REASON_OF[kind] for kind in type(error).__mro__ if kind in _REASON_OF), None)
    return None if reason is None else error_details_pb2.ErrorInfo(reason=reason, domain="saguaro")


def _hint(text: str) -> str:
    """What gRPC's words on a failed connection mean where TLS is the reason; they do not say it."""
    if not text.startswith("failed to connect"):
        return ""
    return next((f" ({hint})" for words, hint in _HINTS.items() if words in text), "")


def _field(bad_request: error_details_pb2.BadRequest | None) -> str:
    return bad_request.field_violations[0].field if bad_request is not None and bad_request.field_violations else ""


@dataclass(slots=True)
class _Details:
    bad_request: error_details_pb2.BadRequest | None = None
    retry_info: error_details_pb2.RetryInfo | None = None
    kind: type[SaguaroError] | None = None


def _details(metadata: Any) -> _Details:
    found = _Details()
    for key, value in metadata:
        if key == _DETAILS_KEY:
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
                    found.bad_request = error_details_pb2.BadRequest.FromString(detail.value)
                elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                    found.retry_info = error_details_pb2.RetryInfo.FromString(detail.value)
                elif detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                    found.kind = _KIND_OF.get(error_details_pb2.ErrorInfo.FromString(detail.value).reason)
    return found
