"""Verdicts of worker messages and gRPC statuses.

Source: the worker contract (protos/README.md); google.rpc.Code and its HTTP mapping (google/rpc/code.proto).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.http2.messages import StatusCode
from gateway.pure.core.durations import format_duration
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Details, Failed, FailureReason

if TYPE_CHECKING:
    from admission_gateway_worker.pb import worker_pb2
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.verdict import Verdict

STATUS_NAMES: Final = tuple(code.name for code in StatusCode)
"""By number, as in google.rpc.Code."""

_HTTP_CODES: Final = {
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}

_ONE_LINE: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")
_MAX_DETAILS_CHARS: Final = 1000
"""Limit of the text in a failure, which people read."""

_BARE_ALLOW_BYTES: Final = (2, 4)
"""Encoded size of a ReviewResponse with only ``allowed`` set, and with ``parameters_applied`` too."""


def verdict_of(response: worker_pb2.ReviewResponse, *, has_parameters: bool = False) -> Verdict:
    """Return the verdict of a worker's answer to a call, which had parameters if *has_parameters*."""
    if response.allowed:
        if has_parameters and not response.parameters_applied:
            return _IGNORED_PARAMETERS
        patch = response.patch
        others = response.ByteSize() - _BARE_ALLOW_BYTES[has_parameters]
        if not others:
            return ALLOWED
        # The size of the field: its tag, the varint of its length, and the patch.
        if others == 1 + (len(patch).bit_length() + 6) // 7 + len(patch):
            # To read the other fields would take longer than the rest.
            return Allowed(patch)
        return Allowed(patch, tuple(response.warnings), tuple(sorted(response.audit_annotations.items())))
    status = response.status
    return Denied(
        status.code if 400 <= status.code <= 599 else 400,
        status.reason,
        status.message,
        tuple(Cause(cause.reason, cause.message, cause.field) for cause in status.causes),
        tuple(response.warnings),
        tuple(sorted(response.audit_annotations.items())),
        Details(status.name, status.group, status.kind, status.uid, status.retry_after_seconds),
    )


def status_name(code: int) -> str:
    """Return the name of a gRPC status; UNKNOWN for an undefined one, and for OK in an error."""
    return STATUS_NAMES[code] if 0 < code < len(STATUS_NAMES) else "UNKNOWN"


def failed_status(name: str, details: str) -> Failed:
    """Return the failure for a gRPC status other than OK."""
    text = one_line(details)
    return Failed(FailureReason.STATUS, f"{name}: {text}" if text else name, _HTTP_CODES.get(name, 500))


def one_line(text: str) -> str:
    """Return *text* in the form that the cause of a failure may have: one line, limited length."""
    # Cut first: an answer can have megabytes of text.
    return text[:_MAX_DETAILS_CHARS].translate(_ONE_LINE)


def failed_deadline(deadline: Deadline) -> Failed:
    """Return the failure of a call that was not answered before its *deadline*."""
    cause = f"DEADLINE_EXCEEDED: no answer within {format_duration(deadline.budget_s)}"
    return Failed(FailureReason.DEADLINE, cause, _HTTP_CODES["DEADLINE_EXCEEDED"])


def failed_malformed(reason: str) -> Failed:
    """Return the failure of an answer that cannot be read."""
    return Failed(FailureReason.MALFORMED, f"malformed answer: {reason}")


_IGNORED_PARAMETERS: Final = failed_status(
    "FAILED_PRECONDITION", "the worker ignored the parameters of the policy: its SDK knows no parameters"
)
