"""Converts the result of a policy into the message for the gateway: a ``ReviewResponse`` or an ``Error``.

The stream and the unary method send the same outcome.

Laws:
1. A denial is always sent as a denial: also with invalid text or code, or raised inside a TaskGroup.
2. Any result other than None or a denial is an Error, never an allowed response.
3. The worker sends no traceback, and at most ``MAX_ERROR_BYTES`` of error text.

Source: protos/admissiongateway/worker/v1/worker.proto; google/rpc/code.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_worker.http2.messages import MAX_MESSAGE_BYTES, StatusCode
from admission_gateway_worker.log import log_failure
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.review import Denied, MalformedPayload, Review, clean_text

if TYPE_CHECKING:
    from admission_gateway_worker.policy import Policy

Outcome = pb.ReviewResponse | pb.Error

ALLOWED: Final = pb.ReviewResponse(allowed=True)
"""The most frequent answer. All reviews share it, so it must not be changed."""

ALLOWED_WITH_PARAMETERS: Final = pb.ReviewResponse(allowed=True, parameters_applied=True)
"""``ALLOWED`` for a call with parameters; shared too."""

MAX_RESPONSE_BYTES: Final = MAX_MESSAGE_BYTES - 128
"""Leaves room for the fields of the verdict and the batch."""

MAX_ERROR_BYTES: Final = 2000
"""Limit of an Error's text. In a unary answer it is percent-encoded, up to three times as long, in the
trailers, which gRPC limits to 8 KiB."""

MAX_RETRY_AFTER_S: Final = 2**31 - 1
"""Seconds; the field of the API server is an int32."""

_GENERIC_TYPES: Final = (Exception, RuntimeError)
"""Types whose name adds no information, so that the text is sent without it, as in other languages."""


def error(code: StatusCode, text: str) -> pb.Error:
    """Return an Error with *code*, and *text* cut to ``MAX_ERROR_BYTES``."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MAX_ERROR_BYTES:
        encoded = encoded[: MAX_ERROR_BYTES - 3] + b"..."
    return pb.Error(code=code, message=encoded.decode("utf-8", "ignore"))


def deadline_exceeded() -> pb.Error:
    """Return the Error of a call whose deadline has passed."""
    return error(StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the policy answered")


def with_parameters(outcome: Outcome) -> Outcome:
    """Return *outcome* as that of a call with parameters."""
    if outcome is ALLOWED:
        return ALLOWED_WITH_PARAMETERS
    if isinstance(outcome, pb.ReviewResponse):
        outcome.parameters_applied = True
    return outcome


def outcome_of_result(policy: Policy, review: Review, result: object) -> Outcome:
    """Return the outcome of a policy that returned *result*: allowed, with its patch, if that is None."""
    if result is not None:
        # Otherwise "return False" would allow, although its author meant a denial.
        wrong = TypeError(
            f"the policy returned {type(result).__name__}: it returns None to allow and raises Denied to deny"
        )
        return outcome_of_exception(policy, review, wrong)
    if not policy.mutating and not review.warnings and not review.annotations:
        return ALLOWED
    try:
        changes = review.changes()
        # Sorted keys give the same bytes in all languages.
        patch = orjson.dumps(changes, option=orjson.OPT_SORT_KEYS) if changes else b""
    except Exception as problem:
        return outcome_of_exception(policy, review, problem)
    if not patch and not review.warnings and not review.annotations:
        return ALLOWED
    response = pb.ReviewResponse(allowed=True, patch=patch)
    # Usually empty, and then not worth a microsecond.
    if review.warnings:
        response.warnings.extend(review.warnings)
    if review.annotations:
        response.audit_annotations.update(review.annotations)
    return _limited(response)


def outcome_of_exception(policy: Policy, review: Review, problem: BaseException) -> Outcome:
    """Return the outcome of a policy that raised *problem*: a denial, or an Error, which is also logged."""
    denial = _denial_in(problem)
    if denial is not None:
        return _limited(_denied(review, denial))
    if isinstance(problem, MalformedPayload):
        return error(StatusCode.INVALID_ARGUMENT, str(problem))
    log_failure(policy, review, problem)
    return error(StatusCode.INTERNAL, failure_text(problem))


def failure_text(problem: BaseException) -> str:
    """Return the text of *problem*, with its type if that adds information."""
    text, name = str(problem), type(problem).__name__
    if text and type(problem) not in _GENERIC_TYPES:
        return f"{name}: {text}"
    return text or name


def _denial_in(problem: BaseException) -> Denied | None:
    """Return the denial, or the first denial in an exception group; None if there is none."""
    if isinstance(problem, Denied):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        return next(filter(None, map(_denial_in, problem.exceptions)), None)
    return None


def _denied(review: Review, denial: Denied) -> pb.ReviewResponse:
    code = denial.code if isinstance(denial.code, int) and 400 <= denial.code <= 599 else 400
    causes = [
        pb.StatusCause(
            reason=clean_text(cause.reason), message=clean_text(cause.message), field=clean_text(cause.field)
        )
        for cause in denial.causes
    ]
    after_s = denial.retry_after_seconds
    status = pb.Status(
        code=code,
        reason=clean_text(denial.reason),
        message=clean_text(denial.message),
        causes=causes,
        retry_after_seconds=after_s if isinstance(after_s, int) and 0 < after_s <= MAX_RETRY_AFTER_S else 0,
        name=clean_text(denial.name),
        group=clean_text(denial.group),
        kind=clean_text(denial.kind),
        uid=clean_text(denial.uid),
    )
    return pb.ReviewResponse(
        allowed=False, status=status, warnings=review.warnings, audit_annotations=review.annotations
    )


def _limited(response: pb.ReviewResponse) -> Outcome:
    """Return *response*; if it is too large, an Error, or a denial with a shortened status."""
    size = response.ByteSize()
    if size <= MAX_RESPONSE_BYTES:
        return response
    if not response.allowed:
        return pb.ReviewResponse(
            allowed=False,
            status=pb.Status(
                code=response.status.code,
                reason=response.status.reason[:64],
                message=response.status.message[:4096],
                retry_after_seconds=response.status.retry_after_seconds,
            ),
        )
    return error(
        StatusCode.RESOURCE_EXHAUSTED,
        f"the answer has {size} bytes ({len(response.patch)} of them patch), more than {MAX_RESPONSE_BYTES}",
    )
